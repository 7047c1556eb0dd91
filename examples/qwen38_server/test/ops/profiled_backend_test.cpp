// SPDX-License-Identifier: Apache-2.0
#include "ops/profiled_backend.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "ops/cpu/cpu_backend.hpp"
#include "ops/cuda/counting_device.hpp"
#include "ops/cuda/cuda_backend.hpp"

namespace qwen38::ops {
namespace {

double of(op_times const& times, op_class cls) {
  return times.of_class[static_cast<std::size_t>(cls)];
}

struct two_rows {
  explicit two_rows(backend& on) : w(on.make_constants(std::vector<float>(8, 0.0F))) {
    memory.push_back(on.make_tensor(row_kind::stream, 2, 8, x));
    memory.push_back(on.make_tensor(row_kind::stream, 2, 8, y));
  }
  std::unique_ptr<constants> w;
  std::vector<std::unique_ptr<storage>> memory;
  tensor x;
  tensor y;
};

TEST(profiled_backend, divides_time_by_class_on_the_cpu) {
  profiled_backend watched(cpu::make_backend(1));
  two_rows rows(watched);
  watched.rms_norm(rows.x, *rows.w, 1e-6F, rows.y);
  op_times const nothing = watched.profile([] {});
  EXPECT_EQ(of(nothing, op_class::norm), 0.0);  // what was done before does not count
  op_times const times = watched.profile([&] { watched.rms_norm(rows.x, *rows.w, 1e-6F, rows.y); });
  EXPECT_GT(of(times, op_class::norm), 0.0);
  EXPECT_EQ(of(times, op_class::gemm), 0.0);
  EXPECT_EQ(of(times, op_class::rows), 0.0);
  EXPECT_EQ(times.count, 0);
  EXPECT_GT(of(watched.profile([&] { watched.copy(rows.x, rows.y); }), op_class::rows), 0.0);
}

TEST(profiled_backend, stops_where_the_work_throws) {
  profiled_backend watched(cpu::make_backend(1));
  EXPECT_THROW(static_cast<void>(watched.profile([] { throw 1; })), int);
  two_rows rows(watched);
  watched.rms_norm(rows.x, *rows.w, 1e-6F, rows.y);
  EXPECT_EQ(of(watched.profile([] {}), op_class::norm), 0.0);
}

/// Counts replays by how many launches they have.
class replay_counter final : public cuda::counting_device {
 public:
  replay_counter() : counting_device({90, 132, 2048, 228 * 1024, 227 * 1024, 60 << 20}, "x", 0) {}
  struct graph final : cuda::device_graph {
    int launches = 0;
  };
  std::unique_ptr<cuda::device_graph> capture_alone(std::function<void()> const& work) override {
    auto made = std::make_unique<graph>();
    now_ = 0;
    work();
    made->launches = now_;
    not_waited_for = 0;
    return made;
  }
  void launch(cuda::kernel_params const& kernel) override {
    ++now_;
    ++not_waited_for;
    counting_device::launch(kernel);
  }
  [[nodiscard]] int launched() const { return now_; }
  void replay_alone(cuda::device_graph& one) override {
    replays.push_back(static_cast<graph&>(one).launches);
    ++not_waited_for;
  }
  void download(void* to, cuda::byte_lines from, std::size_t width, std::size_t height) override {
    if (width > 0 && height > 0) not_waited_for = 0;  // a real device waits for nothing else
    counting_device::download(to, from, width, height);
  }
  int not_waited_for = 0;
  std::vector<int> replays;

 private:
  int now_ = 0;
};

// Two norms and a copy: the whole has 3 launches, norms alone 2, rows alone 1, other classes none.
TEST(profiled_backend, replays_each_class_alone_and_the_whole) {
  auto const device = std::make_shared<replay_counter>();
  profiled_backend watched(cuda::make_backend(device));
  two_rows rows(watched);
  auto const recorded = watched.record([&] {
    watched.rms_norm(rows.x, *rows.w, 1e-6F, rows.y);
    watched.copy(rows.x, rows.y);
    watched.rms_norm(rows.x, *rows.w, 1e-6F, rows.y);
  });
  watched.replay(*recorded);
  EXPECT_EQ(device->replays, std::vector<int>{3});
  device->replays.clear();
  op_times const times = watched.profile([&] { watched.replay(*recorded); });
  EXPECT_EQ(times.count, 1);
  EXPECT_EQ(device->not_waited_for, 0);
  std::vector<int> per_class(4, 0);
  for (int const launches : device->replays) ++per_class[static_cast<std::size_t>(launches)];
  EXPECT_EQ(per_class[3], per_class[2]);
  EXPECT_EQ(per_class[3], per_class[1]);
  EXPECT_EQ(per_class[0], 5 * per_class[3]);
  EXPECT_EQ(device->replays.back(), 3);
}

// Work that is not recorded: the whole first, then each class without the others, each waited for.
TEST(profiled_backend, does_work_class_by_class) {
  auto const device = std::make_shared<replay_counter>();
  profiled_backend watched(cuda::make_backend(device));
  two_rows rows(watched);
  std::vector<int> launched;
  int starts = 0;
  op_times const times = watched.profile_classes([&] { ++starts; },
                                                 [&] {
                                                   int const before = device->launched();
                                                   watched.rms_norm(rows.x, *rows.w, 1e-6F, rows.y);
                                                   watched.copy(rows.x, rows.y);
                                                   watched.rms_norm(rows.x, *rows.w, 1e-6F, rows.y);
                                                   launched.push_back(device->launched() - before);
                                                 });
  std::vector<int> expected(1 + op_class_count, 0);
  expected[0] = 3;
  expected[1 + static_cast<std::size_t>(op_class::norm)] = 2;
  expected[1 + static_cast<std::size_t>(op_class::rows)] = 1;
  EXPECT_EQ(launched, expected);
  EXPECT_EQ(starts, static_cast<int>(expected.size()));
  EXPECT_EQ(device->not_waited_for, 0);
  EXPECT_GT(times.whole, 0.0);
  EXPECT_GT(of(times, op_class::norm), 0.0);
  EXPECT_EQ(times.count, 0);

  EXPECT_THROW(static_cast<void>(watched.profile_classes([] {}, [] { throw 1; })), int);
  int const before = device->launched();
  watched.rms_norm(rows.x, *rows.w, 1e-6F, rows.y);
  EXPECT_EQ(device->launched(), before + 1);
}

}  // namespace
}  // namespace qwen38::ops
