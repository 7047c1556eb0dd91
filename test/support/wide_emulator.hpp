// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <qpn/arch/sm90/gemm_group_program.hpp>
#include <qpn/arch/sm90/gemm_wide_program.hpp>
#include <string>
#include <vector>

#include "support/emulator/fiber.hpp"
#include "support/emulator/warp_math.hpp"

// The lane operations of the GEMMs over wgmma on Hopper, one fiber for each thread of a cluster.
// What is asynchronous comes as late as it may: copies at random times in their order, products
// when somebody waits for them. So a missing wait reads what is not there yet, and a register or a
// stage that is written too early is seen.

namespace qpn::test {

class wide_cluster;

/// An operation that a mutant leaves out.
enum class lost_operation : std::uint8_t {
  none,
  barrier_wait,
  product_wait,
  cluster_sync,
  copy_wait,
  block_sync,
};

class wide_test_lane {
 public:
  wide_test_lane(wide_cluster& cluster, int rank, int thread)
      : cluster_(&cluster), rank_(rank), thread_(thread) {}

  [[nodiscard]] int thread() const { return thread_; }
  [[nodiscard]] int block() const;
  [[nodiscard]] int blocks() const;
  [[nodiscard]] int cluster_size() const;
  [[nodiscard]] int cluster_rank() const { return rank_; }

  template <class T>
  [[nodiscard]] T load(T const* p) {
    return *p;
  }
  template <class T>
  void store(T* p, T value) {
    *p = value;
  }
  template <class T>
  [[nodiscard]] T shared_load(int offset) {
    T value{};
    std::memcpy(&value, shared(rank_, offset, sizeof(T)), sizeof(T));
    return value;
  }
  template <class T>
  void shared_store(int offset, T value) {
    std::memcpy(shared(rank_, offset, sizeof(T)), &value, sizeof(T));
  }
  [[nodiscard]] detail::sm90::float4_quad cluster_load(int offset, int rank) {
    detail::sm90::float4_quad quad;
    std::memcpy(&quad, shared(rank, offset, sizeof(quad)), sizeof(quad));
    return quad;
  }

  void sync_warp() { sync(thread_ / detail::warp_lanes, detail::warp_lanes); }
  void sync_block();
  void sync_consumers() { sync(101, detail::sm90::wide_consumer_threads); }
  void cluster_sync();
  void fence_bulk_copies() {}

  void barrier_init(int barrier, int arrivals);
  void publish_barriers() {}
  void barrier_expect(int barrier, int bytes);
  void barrier_wait(int barrier, int parity);
  void barrier_arrive_if(bool condition, int barrier);
  void copy_bulk(int offset, std::byte const* p, int bytes, int barrier);
  void copy_words(int offset, detail::word4 const* p);
  void copies_arrive(int barrier);
  void allow_next() {}
  void wait_previous() {}

  [[nodiscard]] detail::word4 shared_load_words(int offset) {
    return shared_load<detail::word4>(offset);
  }
  [[nodiscard]] detail::word2 shared_load_pair(int offset) {
    return shared_load<detail::word2>(offset);
  }
  template <class T>
  void copy_if(bool condition, int offset, T const* p) {
    unsigned char* const to = shared(rank_, offset, sizeof(T));
    copies_.push_back([to, p, condition] {
      if (condition) {
        std::memcpy(to, p, sizeof(T));
      } else {
        std::memset(to, 0, sizeof(T));
      }
    });
  }
  void commit_copies() {
    copy_groups_.push_back(std::move(copies_));
    copies_.clear();
  }
  template <int Pending>
  void wait_copies() {
    int const pending = Pending + (loses(lost_operation::copy_wait) ? 1 : 0);
    while (copy_groups_.size() > static_cast<std::size_t>(pending)) {
      for (auto const& copy : copy_groups_.front()) copy();
      copy_groups_.pop_front();
    }
  }
  void barrier_expect_if(bool condition, int barrier, int bytes) {
    if (condition) barrier_expect(barrier, bytes);
  }
  void copy_bulk_if(bool condition, int offset, std::byte const* p, int bytes, int barrier) {
    if (condition) copy_bulk(offset, p, bytes, barrier);
  }

  template <int Count>
  void take_registers() {}
  template <int Count>
  void release_registers() {}
  void hold(detail::word4&) {}
  template <int Steps>
  void begin_products(std::uint32_t (&)[Steps][4]) {}
  void end_products() {
    groups_.push_back(group_);
    group_.clear();
  }
  template <int Pending>
  void wait_products() {
    int const pending = Pending + (loses(lost_operation::product_wait) ? 1 : 0);
    while (groups_.size() > static_cast<std::size_t>(pending)) run_group();
  }
  [[nodiscard]] int rows_at(int offset) const { return offset; }
  template <dtype XType, int Registers>
  void multiply_rows(float (&d)[Registers], std::uint32_t const (&a)[4], int rows, int slice,
                     bool accumulate) {
    group_.push_back({d, Registers, a, rows, slice, accumulate, XType});
  }

  void shared_store_transposed(int offset, int row_bytes, std::uint32_t const (&pairs)[4]) {
    int const id = thread_ % detail::warp_lanes;
    for (int q = 0; q < 4; ++q) {
      for (int b = 0; b < 2; ++b) {
        shared_store(offset + (id % 4 * 2 + b) * row_bytes + 16 * q + 2 * (id / 4),
                     static_cast<std::uint16_t>(pairs[q] >> 16 * b));
      }
    }
  }
  [[nodiscard]] std::uint32_t multiply_half2(std::uint32_t a, std::uint32_t b) {
    return test::multiply_half2(a, b);
  }
  [[nodiscard]] std::uint32_t multiply_bf16x2(std::uint32_t a, std::uint32_t b) {
    return test::multiply_bf16x2(a, b);
  }
  [[nodiscard]] std::uint32_t byte_permute(std::uint32_t a, std::uint32_t b, std::uint32_t s) {
    return test::byte_permute(a, b, s);
  }
  [[nodiscard]] std::uint32_t broadcast_low(std::uint32_t a) { return (a & 0xffffu) * 0x10001u; }
  [[nodiscard]] std::uint32_t broadcast_high(std::uint32_t a) { return (a >> 16) * 0x10001u; }
  [[nodiscard]] std::uint32_t convert_half2(float low, float high) {
    return encode_f16(low) | static_cast<std::uint32_t>(encode_f16(high)) << 16;
  }
  [[nodiscard]] std::uint32_t convert_bf16(float low, float high) {
    return encode_bf16(low) | static_cast<std::uint32_t>(encode_bf16(high)) << 16;
  }
  [[nodiscard]] float fma(float a, float b, float c) { return std::fma(a, b, c); }
  [[nodiscard]] float exp(float x) { return std::exp(x); }
  [[nodiscard]] int keep(int value) { return value; }

 private:
  struct product {
    float* d;
    int registers;
    std::uint32_t const* a;
    int rows;
    int slice;
    bool accumulate;
    dtype type;  ///< of a and of the rows
  };

  [[nodiscard]] unsigned char* shared(int rank, int offset, std::size_t bytes);
  void sync(int barrier, int threads);
  [[nodiscard]] bool loses(lost_operation what) const;
  void run_group();

  wide_cluster* cluster_;
  int rank_;
  int thread_;
  int block_syncs_ = 0;
  std::vector<product> group_;
  std::deque<std::vector<product>> groups_;
  std::vector<std::function<void()>> copies_;
  std::deque<std::vector<std::function<void()>>> copy_groups_;
};

/// The CTAs of one cluster, whose threads all run here, in random order.
class wide_cluster {
 public:
  wide_cluster(int ranks, int first_block, int blocks, int threads, int shared_bytes,
               std::uint64_t seed, lost_operation lost)
      : ranks_(ranks),
        threads_(threads),
        first_block_(first_block),
        blocks_(blocks),
        random_(seed * 2 + 1),
        lost_(lost) {
    for (int i = 0; i < ranks; ++i) {
      // 0xff: NaN, should anybody read what nobody wrote.
      ctas_.push_back(
          {std::vector<unsigned char>(static_cast<std::size_t>(shared_bytes), 0xff), {}, {}, {}});
    }
  }

  /// Runs the program to its end; false where it stands still, or with a problem.
  bool run(std::function<void(wide_test_lane&)> const& program) {
    std::vector<std::unique_ptr<fiber>> fibers;
    for (int rank = 0; rank < ranks_; ++rank) {
      for (int thread = 0; thread < threads_; ++thread) {
        lanes_.emplace_back(*this, rank, thread);
        fibers.push_back(local_fibers().take());
        fibers.back()->start([&program, lane = &lanes_.back()] { program(*lane); });
      }
    }
    int idle_rounds = 0;
    bool running = true;
    while (running && idle_rounds < 50) {
      progress_ = false;
      running = false;
      std::size_t const offset = next_random() % fibers.size();
      for (std::size_t i = 0; i < fibers.size(); ++i) {
        std::size_t const at = (i + offset) % fibers.size();
        if (fibers[at]->idle()) continue;
        running = true;
        current_ = fibers[at].get();
        current_->resume();
        if (fibers[at]->idle()) progress_ = true;
      }
      for (cta& c : ctas_) {
        std::size_t copies = next_random() % 200;
        for (; copies > 0 && !c.copies.empty(); --copies) {
          progress_ = true;
          auto const copy = std::move(c.copies.front());
          c.copies.pop_front();
          copy();
        }
      }
      idle_rounds = progress_ ? 0 : idle_rounds + 1;
    }
    if (running) problem("the cluster stands still");
    for (auto& one : fibers) local_fibers().give_back(std::move(one));
    return problems_.empty();
  }

  [[nodiscard]] std::string const& problems() const { return problems_; }

 private:
  friend class wide_test_lane;

  struct barrier {
    int arrivals = 0;
    int pending = 0;
    std::int64_t bytes = 0;
    int phase = 0;
  };
  struct meeting {
    int arrived = 0;
    int round = 0;
  };
  struct cta {
    std::vector<unsigned char> shared;
    std::map<int, barrier> barriers;
    std::map<int, meeting> meetings;
    std::deque<std::function<void()>> copies;
  };

  [[nodiscard]] std::uint64_t next_random() {
    random_ ^= random_ << 13;
    random_ ^= random_ >> 7;
    random_ ^= random_ << 17;
    return random_;
  }
  void problem(std::string const& what) {
    if (problems_.size() < 1000) problems_ += what + "\n";
  }
  void wait_until(std::function<bool()> const& done) {
    while (!done()) current_->suspend();
    progress_ = true;
  }
  void meet(meeting& at, int threads) {
    int const round = at.round;
    if (++at.arrived == threads) {
      at.arrived = 0;
      ++at.round;
    }
    progress_ = true;
    wait_until([&at, round] { return at.round != round; });
  }
  void settle(barrier& b) {
    if (b.pending != 0 || b.bytes != 0) return;
    b.phase ^= 1;
    b.pending = b.arrivals;
    progress_ = true;
  }

  int ranks_;
  int threads_;  ///< of a CTA
  int first_block_;
  int blocks_;
  std::uint64_t random_;
  lost_operation lost_;
  std::deque<wide_test_lane> lanes_;
  std::vector<cta> ctas_;
  meeting of_all_;
  fiber* current_ = nullptr;
  bool progress_ = false;
  std::string problems_;
};

inline bool wide_test_lane::loses(lost_operation what) const {
  return cluster_->lost_ == what;
}
inline int wide_test_lane::block() const {
  return cluster_->first_block_ + rank_;
}
inline int wide_test_lane::blocks() const {
  return cluster_->blocks_;
}
inline int wide_test_lane::cluster_size() const {
  return cluster_->ranks_;
}

inline unsigned char* wide_test_lane::shared(int rank, int offset, std::size_t bytes) {
  static unsigned char nowhere[16];
  auto& memory = cluster_->ctas_[static_cast<std::size_t>(rank)].shared;
  if (offset < 0 || static_cast<std::size_t>(offset) + bytes > memory.size() ||
      static_cast<std::size_t>(offset) % bytes != 0) {
    cluster_->problem("shared memory: " + std::to_string(bytes) + " bytes at " +
                      std::to_string(offset));
    return nowhere;
  }
  return memory.data() + offset;
}

inline void wide_test_lane::sync(int barrier, int threads) {
  auto& c = cluster_->ctas_[static_cast<std::size_t>(rank_)];
  cluster_->meet(c.meetings[barrier], threads);
}

inline void wide_test_lane::sync_block() {
  if (loses(lost_operation::block_sync) && block_syncs_++ > 0) return;
  sync(100, cluster_->threads_);
}

inline void wide_test_lane::cluster_sync() {
  if (loses(lost_operation::cluster_sync)) return;
  cluster_->meet(cluster_->of_all_, cluster_->ranks_ * cluster_->threads_);
}

inline void wide_test_lane::barrier_init(int barrier, int arrivals) {
  cluster_->ctas_[static_cast<std::size_t>(rank_)].barriers[barrier] = {arrivals, arrivals, 0, 0};
}

inline void wide_test_lane::barrier_expect(int barrier, int bytes) {
  auto& b = cluster_->ctas_[static_cast<std::size_t>(rank_)].barriers.at(barrier);
  b.bytes += bytes;
  --b.pending;
  cluster_->settle(b);
}

inline void wide_test_lane::barrier_wait(int barrier, int parity) {
  if (loses(lost_operation::barrier_wait) && thread_ < detail::sm90::wide_consumer_threads) return;
  auto& b = cluster_->ctas_[static_cast<std::size_t>(rank_)].barriers.at(barrier);
  cluster_->wait_until([&b, parity] { return b.phase != parity; });
}

inline void wide_test_lane::barrier_arrive_if(bool condition, int barrier) {
  if (!condition) return;
  auto& b = cluster_->ctas_[static_cast<std::size_t>(rank_)].barriers.at(barrier);
  --b.pending;
  cluster_->settle(b);
}

inline void wide_test_lane::copy_bulk(int offset, std::byte const* p, int bytes, int barrier) {
  auto& c = cluster_->ctas_[static_cast<std::size_t>(rank_)];
  if (bytes % 16 != 0 || offset % 16 != 0 || bytes <= 0 ||
      static_cast<std::size_t>(offset + bytes) > c.shared.size()) {
    cluster_->problem("copy_bulk: a size or place that the hardware does not take");
    return;
  }
  c.copies.push_back([this, &c, offset, p, bytes, barrier] {
    std::memcpy(c.shared.data() + offset, p, static_cast<std::size_t>(bytes));
    auto& b = c.barriers.at(barrier);
    b.bytes -= bytes;
    cluster_->settle(b);
  });
}

inline void wide_test_lane::copy_words(int offset, detail::word4 const* p) {
  auto& c = cluster_->ctas_[static_cast<std::size_t>(rank_)];
  unsigned char* const to = shared(rank_, offset, sizeof(*p));
  c.copies.push_back([to, p] { std::memcpy(to, p, sizeof(*p)); });
}

inline void wide_test_lane::copies_arrive(int barrier) {
  auto& c = cluster_->ctas_[static_cast<std::size_t>(rank_)];
  c.copies.push_back([this, &c, barrier] {
    auto& b = c.barriers.at(barrier);
    --b.pending;
    cluster_->settle(b);
  });
}

/// d += a b of the oldest group, PTX ISA "Asynchronous warpgroup-level matrix multiply-accumulate":
/// as multiply_accumulate_m16n8k16 does it, to the bit.
inline void wide_test_lane::run_group() {
  sync_warp();  // all lanes of the warp wait for the same group
  int const id = thread_ % detail::warp_lanes;
  auto const first = static_cast<std::size_t>(rank_ * cluster_->threads_ + thread_ - id);
  for (std::size_t p = 0; p < groups_.front().size(); ++p) {
    product const& mine = groups_.front()[p];
    for (int half = 0; half < 2; ++half) {
      double a[16];
      for (int slot = 0; slot < 16; ++slot) {
        auto const from = first + static_cast<std::size_t>(id / 4 * 4 + slot % 8 / 2);
        product const& its = cluster_->lanes_[from].groups_.front()[p];
        std::uint32_t const pair = its.a[slot / 8 * 2 + half];
        a[slot] = static_cast<double>(detail::decode_16(
            static_cast<std::uint16_t>(slot % 2 == 0 ? pair : pair >> 16), mine.type));
      }
      for (int j = 0; j < mine.registers / 4; ++j) {
        for (int b = 0; b < 2; ++b) {
          int const row = 8 * j + id % 4 * 2 + b;
          float& d = mine.d[4 * j + 2 * half + b];
          double sum = 0.0;
          for (int slot = 0; slot < 16; ++slot) {
            int const chunk = 2 * mine.slice + slot / 8;
            auto const x = shared_load<std::uint16_t>(mine.rows + row * 128 +
                                                      16 * (chunk ^ row % 8) + 2 * (slot % 8));
            sum += a[slot] * static_cast<double>(detail::decode_16(x, mine.type));
          }
          d = static_cast<float>(sum + (mine.accumulate ? static_cast<double>(d) : 0.0));
        }
      }
    }
  }
  sync_warp();  // the registers of the others are read
  groups_.pop_front();
}

}  // namespace qpn::test
