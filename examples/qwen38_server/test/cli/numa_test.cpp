// SPDX-License-Identifier: Apache-2.0
#include "cli/numa.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <fstream>
#include <thread>

namespace qwen38::cli {
namespace {

std::vector<int> own_cpus() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  EXPECT_EQ(sched_getaffinity(0, sizeof mask, &mask), 0);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &mask)) cpus.push_back(cpu);
  }
  return cpus;
}

/// A tree like /sys of a machine that the test makes up.
class fake_sysfs : public ::testing::Test {
 protected:
  fake_sysfs()
      : root_(std::filesystem::temp_directory_path() / ("numa_test." + std::to_string(getpid()))) {}
  ~fake_sysfs() override { std::filesystem::remove_all(root_); }

  void put(std::filesystem::path const& path, std::string const& text) const {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << '\n';
  }
  void put_gpu(std::string const& node) const {
    put("bus/pci/devices/0000:1b:00.0/numa_node", node);
  }
  [[nodiscard]] numa_place find() const { return find_numa_place("0000:1B:00.0", root_); }
  void expect_nowhere(std::string const& sentence) const {
    numa_place const place = find();
    EXPECT_EQ(place.node, -1);
    EXPECT_TRUE(place.cpus.empty());
    EXPECT_NE(place.why_not.find(sentence), std::string::npos) << place.why_not;
  }

  std::filesystem::path const root_;
};

TEST(cpu_list, is_numbers_and_ranges) {
  EXPECT_EQ(parse_cpu_list("0-3,8,10-11"), (std::vector<int>{0, 1, 2, 3, 8, 10, 11}));
  EXPECT_EQ(parse_cpu_list("5"), std::vector<int>{5});
  for (auto const* const text : {"", "x", "3-1", "-1", "1-", "0-9999999", "1,,2"}) {
    EXPECT_TRUE(parse_cpu_list(text).empty()) << text;
  }
}

TEST_F(fake_sysfs, gives_the_gpus_node_and_those_of_its_processors_that_are_ours) {
  auto const own = own_cpus();
  put_gpu("1");
  put("devices/system/node/node0/cpulist", "9000");
  put("devices/system/node/node1/cpulist", std::to_string(own.back()) + ",8191");
  numa_place const place = find();
  EXPECT_EQ(place.node, 1);
  EXPECT_EQ(place.cpus, std::vector<int>{own.back()});
  EXPECT_EQ(place.why_not, "");
}

TEST_F(fake_sysfs, says_why_there_is_no_node) {
  expect_nowhere("numa_node cannot be read");
  put_gpu("-1");
  expect_nowhere("numa_node says -1");
  put_gpu("2");
  expect_nowhere("node2/cpulist names no processors");
  put("devices/system/node/node2/cpulist", "8191");
  expect_nowhere("no processor of the GPU's node 2");
}

TEST_F(fake_sysfs, keeps_a_thread_and_those_that_it_starts_there) {
  auto const own = own_cpus();
  put_gpu("0");
  put("devices/system/node/node0/cpulist", std::to_string(own.front()));
  numa_place const place = find();
  std::vector<int> there;
  std::vector<int> started;
  std::vector<int> visited;
  std::vector<int> afterwards;
  std::thread([&] {
    {
      numa_visit const visit(place);
      visited = own_cpus();
    }
    afterwards = own_cpus();
    run_at(place);
    there = own_cpus();
    std::thread([&] { started = own_cpus(); }).join();
  }).join();
  EXPECT_EQ(visited, std::vector<int>{own.front()});
  EXPECT_EQ(afterwards, own);
  EXPECT_EQ(there, std::vector<int>{own.front()});
  EXPECT_EQ(started, there);
  EXPECT_EQ(own_cpus(), own);
}

TEST(numa, a_place_that_is_not_known_moves_no_thread) {
  auto const own = own_cpus();
  std::thread([&] {
    run_at({});
    EXPECT_EQ(own_cpus(), own);
  }).join();
}

}  // namespace
}  // namespace qwen38::cli
