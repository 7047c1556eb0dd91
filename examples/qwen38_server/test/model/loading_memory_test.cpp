// SPDX-License-Identifier: Apache-2.0
// How much memory of the host a checkpoint takes on its way to a device.

#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>

#include "checkpoint/synthetic.hpp"
#include "model/weights.hpp"
#include "ops/cuda/counting_device.hpp"
#include "ops/cuda/cuda_backend.hpp"

namespace qwen38::model {
namespace {

/// Reads what is uploaded, as a copy to a GPU does.
class reading_device final : public ops::cuda::counting_device {
 public:
  reading_device() : counting_device({70, 80, 2048, 96 * 1024, 96 * 1024, 6 << 20}, "reading", 0) {}
  void upload(void*, void const* from, std::size_t bytes) override {
    auto const* const first = static_cast<unsigned char const*>(from);
    sum += std::accumulate(first, first + bytes, std::uint64_t{0});
    read += bytes;
  }
  std::uint64_t sum = 0;
  std::uint64_t read = 0;
};

/// A line of /proc/self/status, in KiB.
std::int64_t status_of(std::string const& name) {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    std::int64_t value = 0;
    if (word == name + ":" && file >> value) return value;
  }
  return -1;
}

/// The highest resident size from now on.
void forget_peak() {
  std::ofstream("/proc/self/clear_refs") << "5";
}

class directory_of_its_own {
 public:
  directory_of_its_own()
      : path(std::filesystem::temp_directory_path() /
             ("qwen38-loading-" + std::to_string(::getpid()))) {}
  ~directory_of_its_own() { std::filesystem::remove_all(path); }
  std::filesystem::path const path;
};

TEST(loading_memory, is_that_of_a_tensor_not_of_the_checkpoint) {
  directory_of_its_own const folder;
  std::uint64_t stored = 0;
  {
    checkpoint::synthetic_checkpoint const made("small");
    made.write(folder.path, "{\"added_tokens\": []}", std::uint64_t{64} << 20, {});
    stored = made.byte_count();
  }
  ASSERT_GT(stored, std::uint64_t{200} << 20);
  for (int const tp : {1, 2}) {
    checkpoint::repository files(folder.path);
    auto const config = checkpoint::load_model_config(folder.path);
    auto const device = std::make_shared<reading_device>();
    auto const backend = ops::cuda::make_backend(device);
    std::uint64_t told = 0;
    std::uint64_t total = 0;
    forget_peak();
    std::int64_t const before = status_of("VmRSS");
    auto const weights =
        load_weights(files, config, parallel::shard_plan(config, tp), 0, *backend,
                     {.on_progress = [&](std::uint64_t done, std::uint64_t all, std::string_view) {
                       EXPECT_GE(done, told);
                       told = done;
                       total = all;
                     }});
    std::int64_t const grown = status_of("VmHWM") - before;
    EXPECT_GT(device->read, stored / 2 / static_cast<unsigned>(tp));
    EXPECT_LT(grown, 48 * 1024) << "KiB, tp " << tp;
    EXPECT_EQ(told, total);
    EXPECT_GT(total, stored * 9 / 10);
    EXPECT_GT(weights.packed_bytes, 0U);
  }
}

}  // namespace
}  // namespace qwen38::model
