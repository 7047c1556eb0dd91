// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/hub_revision.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace qwen38::checkpoint {
namespace {

std::string const commit = "0123456789abcdef0123456789abcdef01234567";
std::string const other = "1123456789abcdef0123456789abcdef01234567";

class hub_files : public ::testing::Test {
 protected:
  hub_files()
      : root_(std::filesystem::temp_directory_path() / ("hub_files." + std::to_string(getpid()))) {
    std::filesystem::create_directories(root_);
  }
  ~hub_files() override { std::filesystem::remove_all(root_); }

  [[nodiscard]] std::filesystem::path make(std::filesystem::path const& directory) const {
    std::filesystem::create_directories(root_ / directory);
    return root_ / directory;
  }
  /// What a download into `directory` leaves for one file.
  static void note(std::filesystem::path const& directory, std::string const& file,
                   std::string const& first_line) {
    auto const notes = directory / ".cache" / "huggingface" / "download";
    std::filesystem::create_directories(notes);
    std::ofstream(notes / (file + ".metadata")) << first_line << "\netag\n1754000000.5\n";
  }

  std::filesystem::path const root_;
};

TEST_F(hub_files, of_the_cache_name_repository_and_commit) {
  auto const snapshot = make("models--an-owner--Model-1.5-NVFP4/snapshots/" + commit);
  auto const found = find_hub_revision(snapshot);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->repository, "an-owner/Model-1.5-NVFP4");
  EXPECT_EQ(found->commit, commit);
  std::filesystem::create_directory_symlink(snapshot, root_ / "link");
  EXPECT_EQ(find_hub_revision(root_ / "link")->commit, commit);
  EXPECT_EQ(find_hub_revision(snapshot / "")->commit, commit);
}

TEST_F(hub_files, of_another_shape_name_nothing) {
  EXPECT_FALSE(find_hub_revision(make("models--a--b/snapshots/main")));
  EXPECT_FALSE(find_hub_revision(make("models--a--b/snapshots/" + commit.substr(1))));
  EXPECT_FALSE(find_hub_revision(make("datasets--a--b/snapshots/" + commit)));
  EXPECT_FALSE(find_hub_revision(make("models--a/snapshots/" + commit)));
  EXPECT_FALSE(find_hub_revision(make("models--a--b/refs/" + commit)));
  EXPECT_FALSE(find_hub_revision(root_ / "nothing"));
}

TEST_F(hub_files, of_a_local_directory_name_the_commit_they_agree_on) {
  auto const directory = make("model");
  EXPECT_FALSE(find_hub_revision(directory));
  note(directory, "config.json", commit);
  note(directory, "model.safetensors.index.json", commit);
  auto const found = find_hub_revision(directory);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->repository, "");
  EXPECT_EQ(found->commit, commit);
  note(directory, "model-00001-of-00003.safetensors", other);
  EXPECT_FALSE(find_hub_revision(directory));
  note(directory, "model-00001-of-00003.safetensors", "no commit");
  EXPECT_FALSE(find_hub_revision(directory));
}

}  // namespace
}  // namespace qwen38::checkpoint
