// SPDX-License-Identifier: Apache-2.0
#include "support/read_ceiling.hpp"

#include <vector>

#include "support/captured_graph.hpp"
#include "support/random_fill.hpp"
#include "support/read_kernel.hpp"
#include "support/rotation.hpp"
#include "support/statistics.hpp"

namespace qpn::bench {

double read_us(rotated_memory const& memory, std::int64_t launches, std::int64_t replays,
               machine const& gpu) {
  test::device_memory const sink(sizeof(std::uint32_t));
  std::int64_t const count = launches_of(memory.copies, launches);
  captured_graph const graph(gpu.stream(), [&] {
    for (std::int64_t i = 0; i < count; ++i) {
      std::byte const* const piece =
          memory.data + static_cast<std::size_t>(i % memory.copies) * memory.stride;
      test::require(launch_read(piece, memory.bytes, reinterpret_cast<std::uint32_t*>(sink.data()),
                                gpu.info().sm_count, gpu.stream()));
    }
  });
  static_cast<void>(graph.timed_replay());  // what the first replay sets up is not timed
  std::vector<double> us;
  for (std::int64_t i = 0; i < replays; ++i) {
    us.push_back(graph.timed_replay() / static_cast<double>(count));
  }
  return median(us);
}

double read_us(std::size_t bytes, std::int64_t launches, std::int64_t replays, machine const& gpu) {
  std::int64_t const copies =
      copies_of(static_cast<std::int64_t>(bytes), rotation_bytes(gpu.info().l2_bytes));
  test::device_memory const memory(static_cast<std::size_t>(copies) * bytes);
  test::require(fill_random(random_bytes::any, 1, memory.data(), memory.size(), gpu.stream()));
  return read_us({memory.data(), bytes, bytes, copies}, launches, replays, gpu);
}

}  // namespace qpn::bench
