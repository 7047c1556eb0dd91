// SPDX-License-Identifier: Apache-2.0
#include "parallel/device_group.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "ops/cuda/memory.hpp"
#include "parallel/rendezvous.hpp"
#include "support/error.hpp"

namespace qwen38::parallel {
namespace {

using namespace ops::cuda;
using operation = call_shape::operation;

/// Memory of one rank that the others write.
struct rank_memory {
  device_block inbox;
  device_block flags;
  device_block list_ids;  ///< [ranks][rows][candidates]
  device_block list_values;
  device_block best;  ///< [ranks][rows]
};

/// What a rank shows the others for the length of one call.
struct publication {
  ops::tensor rows;
  ops::tensor target;
  norm_step then;
  candidate_lists lists;
  ops::token_list best;
};

std::atomic_ref<std::uint32_t> word(std::uint32_t* words, int index) {
  return std::atomic_ref<std::uint32_t>(words[index]);
}

bool share_one_gpu(std::vector<std::shared_ptr<device>> const& devices) {
  std::set<int> gpus;
  for (auto const& one : devices) gpus.insert(one->ordinal());
  if (gpus.size() == devices.size() && devices.size() > 1) return false;
  if (gpus.size() == 1) return true;
  throw error(error_kind::invalid_argument,
              std::to_string(devices.size()) + " ranks on " + std::to_string(gpus.size()) +
                  " GPUs: expected a GPU for each rank, or one for all");
}

/// A rank's part of a graph of all ranks' work.
struct joint_graph final : device_graph {
  std::uint64_t number = 0;           ///< equal in all parts of a graph, and in no other's
  std::unique_ptr<device_graph> all;  ///< rank 0's alone
};

class device_group {
 public:
  device_group(std::vector<std::shared_ptr<device>> devices, device_group_options const& options)
      : devices_(std::move(devices)),
        options_(options),
        shares_gpu_(share_one_gpu(devices_)),
        ranks_(size()),
        capturing_ranks_(size()),
        published_(devices_.size()),
        calls_(devices_.size()) {
    if (size() > max_peers) {
      throw error(error_kind::invalid_argument, std::to_string(size()) +
                                                    " ranks: expected at most " +
                                                    std::to_string(max_peers) + " in a group");
    }
    for (auto const& one : devices_) {
      for (auto const& other : devices_) one->reach(*other);
    }
    words_ = devices_.front()->make_host_words(devices_.size() + 1);
    guard_.stop = words_.get();
    guard_.failures = words_.get() + 1;
    guard_.limit_ns = std::chrono::nanoseconds(options_.patience).count();
    for (auto const& one : devices_) {
      memory_.push_back(allocate(*one));
      ready_.push_back(one->make_mark());
    }
    joined_ = devices_.front()->make_mark();
    for (auto const& one : devices_) one->wait();  // all flags are 0 before any is raised
  }
  device_group(device_group const&) = delete;
  device_group& operator=(device_group const&) = delete;
  ~device_group() {
    word(words_.get(), 0).store(1);  // kernels that wait for nobody end
    for (auto const& one : devices_) wait(*one);
  }

  [[nodiscard]] int size() const noexcept { return static_cast<int>(devices_.size()); }
  [[nodiscard]] device& at(int rank) const { return *devices_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] bool shares_gpu() const noexcept { return shares_gpu_; }
  [[nodiscard]] std::size_t resident_bytes(int rank) const noexcept {
    rank_memory const& own = memory_[static_cast<std::size_t>(rank)];
    return own.inbox.bytes() + own.flags.bytes() + own.list_ids.bytes() + own.list_values.bytes() +
           own.best.bytes();
  }

  void sum(int rank, publication const& own) {
    start_call(rank, own.rows.rows);
    if (own.rows.cols > options_.max_cols) {
      throw error(error_kind::internal, "sum over ranks: " + std::to_string(own.rows.cols) +
                                            " columns, expected at most " +
                                            std::to_string(options_.max_cols));
    }
    peer_reduce_params kernel;
    auto const fill = [&](int of, publication const& shown) {
      peer_reduce_params::rank_rows& entry = kernel.of[of];
      entry.partial = static_cast<float const*>(shown.rows.data);
      entry.x = static_cast<float*>(shown.target.data);
      entry.norm_w = shown.then.w != nullptr ? shown.then.w->data() : nullptr;
      entry.y = shown.then.y.data;
    };
    for (int of = 0; of < size(); ++of) {
      kernel.of[of].inbox = memory_[static_cast<std::size_t>(of)].inbox.as<float>();
      kernel.of[of].flags = flags_of(of, reduce_flags);
    }
    kernel.cols = own.rows.cols;
    kernel.partial_stride = own.rows.stride;
    kernel.x_stride = own.target.stride;
    kernel.y_stride = own.then.y.stride;
    kernel.y_is_half = own.then.y.type == qpn::dtype::f16;
    kernel.eps = own.then.eps;
    kernel.inbox_rows = options_.max_rows;
    kernel.inbox_cols = options_.max_cols;
    if (!shares_gpu_) {
      fill(rank, own);
      launch(kernel, rank, 1, own.rows.rows);
      return;
    }
    join(rank, {operation::sum, own.rows.rows, own.rows.cols}, own, [&] {
      for (int of = 0; of < size(); ++of) fill(of, published_[static_cast<std::size_t>(of)]);
      launch(kernel, 0, size(), own.rows.rows);
    });
  }

  void gather(int rank, publication const& own) {
    start_call(rank, own.rows.rows);
    peer_gather_params kernel;
    kernel.words = own.rows.cols;
    kernel.source_stride = own.rows.stride;
    kernel.rank_stride = own.rows.cols;
    call_shape const shape{operation::gather, own.rows.rows, own.rows.cols};
    auto const fill = [&] {
      ops::tensor const& target = published_.front().target;
      for (int of = 0; of < size(); ++of) {
        kernel.of[of].source[0] = words_of(published_[static_cast<std::size_t>(of)].rows.data);
      }
      kernel.of[0].target[0] = static_cast<std::uint32_t*>(target.data);
      kernel.target_stride = target.stride;
    };
    if (!shares_gpu_) {
      publish(rank, shape, own);
      fill();
      ranks_.meet();
      launch_gather(kernel, rank, own.rows.rows);
      return;
    }
    join(rank, shape, own, [&] {
      fill();
      launch_gather(kernel, 0, own.rows.rows);
    });
  }

  void merge(int rank, candidate_lists const& lists) {
    start_call(rank, lists.rows);
    qpn::merge_candidates_args merged;
    rank_memory const& own = memory_[static_cast<std::size_t>(rank)];
    merged.m = lists.rows;
    merged.candidates = lists.candidates;
    merged.shards = size();
    merged.ids = own.list_ids.as<std::int32_t>();
    merged.values = own.list_values.as<float>();
    merged.merged_ids = lists.ids;
    merged.merged_values = lists.values;
    qpn::status const checked = qpn::detail::check_merge_candidates(merged);
    if (!checked.ok()) throw error(error_kind::internal, checked.what);

    peer_gather_params kernel;
    kernel.parts = 2;
    kernel.words = lists.candidates;
    kernel.source_stride = lists.candidates;
    kernel.target_stride = lists.candidates;
    kernel.rank_stride = lists.rows * lists.candidates;
    for (int of = 0; of < size(); ++of) {
      rank_memory const& memory = memory_[static_cast<std::size_t>(of)];
      kernel.of[of].target[0] = memory.list_ids.as<std::uint32_t>();
      kernel.of[of].target[1] = memory.list_values.as<std::uint32_t>();
    }
    auto const fill = [&](int of, candidate_lists const& shown) {
      kernel.of[of].source[0] = words_of(shown.ids);
      kernel.of[of].source[1] = words_of(shown.values);
    };
    if (shares_gpu_) {
      publication const shown{{}, {}, {}, lists, {}};
      join(rank, {operation::merge, lists.rows, lists.candidates}, shown, [&] {
        for (int of = 0; of < size(); ++of)
          fill(of, published_[static_cast<std::size_t>(of)].lists);
        launch_gather(kernel, 0, lists.rows);
      });
    } else {
      fill(rank, lists);
      launch_gather(kernel, rank, lists.rows);
    }
    at(rank).launch(merge_lists_params{merged});
  }

  void max_over_ranks(int rank, ops::token_list best) {
    std::int64_t const rows = std::ssize(best);
    start_call(rank, rows);
    static_assert(sizeof(ranked_id) == 2 * sizeof(std::uint32_t));
    peer_gather_params kernel;
    kernel.words = 2;
    kernel.source_stride = 2;
    kernel.target_stride = 2;
    kernel.rank_stride = 2 * rows;
    for (int of = 0; of < size(); ++of) {
      kernel.of[of].target[0] = memory_[static_cast<std::size_t>(of)].best.as<std::uint32_t>();
    }
    if (shares_gpu_) {
      join(rank, {operation::maximum, rows, 0}, {{}, {}, {}, {}, best}, [&] {
        for (int of = 0; of < size(); ++of) {
          kernel.of[of].source[0] = words_of(published_[static_cast<std::size_t>(of)].best.data());
        }
        launch_gather(kernel, 0, rows);
      });
    } else {
      kernel.of[rank].source[0] = words_of(best.data());
      launch_gather(kernel, rank, rows);
    }
    at(rank).launch(best_of_ranks_params{
        memory_[static_cast<std::size_t>(rank)].best.as<ranked_id>(), best.data(), rows, size()});
  }

  /// One graph, begun and ended in rank 0's stream, of what all ranks' `work` does in theirs. Where
  /// it fails on one rank, the graph is dropped and all throw what failed first.
  [[nodiscard]] std::unique_ptr<device_graph> capture(int rank, std::function<void()> const& work) {
    start_call(rank, 0);
    ranks_.begin_call(rank, {operation::capture, 0, 0});
    auto part = std::make_unique<joint_graph>();
    part->number = calls_[static_cast<std::size_t>(rank)];
    // All ranks have come, and each comes to both meetings, whatever fails: at the first nobody
    // works any longer, after the second no stream is captured.
    if (rank == 0) {
      part->all = capture_all(work);
    } else {
      take_part(rank, work);
      capturing_ranks_.meet();
    }
    capturing_ranks_.meet();
    if (first_failure_) throw error(*first_failure_);
    return part;
  }

  void replay(int rank, device_graph& graph) {
    auto& part = static_cast<joint_graph&>(graph);
    start_call(rank, 0);
    join(rank, {operation::replay, static_cast<std::int64_t>(part.number), 0}, {},
         [&] { at(0).replay_alone(*part.all); });
  }

  void check() {
    bool stopped = word(words_.get(), 0).load() != 0;
    for (int rank = 0; rank < size(); ++rank) {
      std::uint32_t const failure = word(words_.get(), 1 + rank).load();
      stopped = stopped || failure != 0;
      if (failure == 0 || (failure & stopped_wait) != 0) continue;
      throw error(error_kind::internal, "rank " + std::to_string(rank) + " waited " +
                                            std::to_string(options_.patience.count()) +
                                            " ms for rank " + std::to_string(failure - 1) +
                                            " on the GPU and gave up");
    }
    if (!stopped) return;
    half_done_ = true;
    throw error(error_kind::internal, "a rank gave up while another waited for it");
  }

  /// On one GPU a kernel has all of its ranks in one grid and waits for no later launch: what runs
  /// is left to end, so that a group whose ranks all failed can go on from it.
  void give_up(int rank) noexcept {
    if (!shares_gpu_) word(words_.get(), 0).store(1);
    ranks_.give_up(rank);
  }

  [[nodiscard]] bool rejoin(int rank) noexcept {
    bool is_whole =
        wait(at(rank)) && !half_done_ && std::ranges::count(calls_, calls_.front()) == size();
    for (int of = 0; of < size(); ++of) is_whole = is_whole && word(words_.get(), 1 + of) == 0;
    if (!is_whole || !ranks_.rejoin(rank)) return false;
    if (++rejoined_ == size()) {
      rejoined_ = 0;
      first_failure_.reset();
      word(words_.get(), 0).store(0);
    }
    return true;
  }

 private:
  enum flag_set { reduce_flags, gather_flags };
  static constexpr int flag_sets = 2;

  static std::uint32_t const* words_of(void const* data) {
    return static_cast<std::uint32_t const*>(data);
  }

  static bool wait(device& one) noexcept {
    try {
      one.wait();
      return true;
    } catch (error const&) {
      return false;  // the caller has an error of its own, or nobody to tell
    }
  }

  [[nodiscard]] rank_memory allocate(device& owner) const {
    std::int64_t const inbox = 2 * size() * options_.max_rows * options_.max_cols;
    std::int64_t const lists = size() * options_.max_rows * qpn::max_candidates;
    std::string const what = "the exchange between ranks";
    return {make_array<float>(owner, inbox, what),
            make_array<std::uint64_t>(owner, flag_sets * flags_per_set(), what),
            make_array<std::int32_t>(owner, lists, what), make_array<float>(owner, lists, what),
            make_array<ranked_id>(owner, size() * options_.max_rows, what)};
  }

  [[nodiscard]] std::int64_t flags_per_set() const { return (1 + 2 * size()) * options_.max_rows; }
  [[nodiscard]] peer_flags flags_of(int rank, flag_set set) const {
    auto* const first =
        memory_[static_cast<std::size_t>(rank)].flags.as<std::uint64_t>() + set * flags_per_set();
    return {first, first + options_.max_rows, first + (1 + size()) * options_.max_rows};
  }

  void start_call(int rank, std::int64_t rows) {
    check();
    if (rows > options_.max_rows) {
      throw error(error_kind::internal, "exchange between ranks: " + std::to_string(rows) +
                                            " rows, expected at most " +
                                            std::to_string(options_.max_rows));
    }
    ++calls_[static_cast<std::size_t>(rank)];
  }

  void publish(int rank, call_shape const& shape, publication const& own) {
    published_[static_cast<std::size_t>(rank)] = own;
    ranks_.begin_call(rank, shape);
  }

  /// Rank 0 launches for all: after all ranks' work so far, and before what follows on any.
  template <class Launch>
  void join(int rank, call_shape const& shape, publication const& own, Launch const& launch_all) {
    at(rank).record(*ready_[static_cast<std::size_t>(rank)]);
    publish(rank, shape, own);
    if (rank == 0) {
      wait_for_others();
      launch_all();
      at(0).record(*joined_);
    }
    ranks_.meet();
    if (rank != 0) at(rank).wait_for(*joined_);
  }

  void wait_for_others() {
    for (int other = 1; other < size(); ++other) {
      at(0).wait_for(*ready_[static_cast<std::size_t>(other)]);
    }
  }

  /// Rank 0's capture, which holds the others' from the first meeting in it to the last.
  [[nodiscard]] std::unique_ptr<device_graph> capture_all(std::function<void()> const& work) {
    std::unique_ptr<device_graph> graph;
    bool begun = false;
    attempt(0, [&] {
      graph = at(0).capture_alone([&] {
        begun = true;
        attempt(0, [&] {
          at(0).record(*joined_);
          ranks_.meet();
          work();
        });
        capturing_ranks_.meet();
        wait_for_others();
        if (first_failure_) throw error(*first_failure_);
      });
    });
    if (!begun) capturing_ranks_.meet();
    return graph;
  }
  void take_part(int rank, std::function<void()> const& work) {
    attempt(rank, [&] {
      ranks_.meet();
      at(rank).wait_for(*joined_);
      attempt(rank, work);
      at(rank).record(*ready_[static_cast<std::size_t>(rank)]);
    });
  }

  /// A rank's part of a capture: where it fails, the others give up theirs.
  template <class Part>
  void attempt(int rank, Part const& part) noexcept {
    try {
      part();
    } catch (error const& failure) {
      abandon_capture(rank, failure);
    } catch (std::exception const& failure) {
      abandon_capture(rank, error(error_kind::internal, failure.what()));
    }
  }
  void abandon_capture(int rank, error const& failure) noexcept {
    {
      std::scoped_lock const lock(failure_mutex_);
      if (!first_failure_) first_failure_ = failure;
    }
    give_up(rank);
  }

  /// In grids whose CTAs are all resident.
  template <class Kernel>
  void launch(Kernel& kernel, int rank, int grid_ranks, std::int64_t rows) {
    std::int64_t const resident = std::int64_t{Kernel::min_blocks} * at(rank).info().sm_count;
    std::int64_t const most = std::max<std::int64_t>(1, resident / grid_ranks);
    kernel.ranks = size();
    kernel.first_rank = rank;
    kernel.grid_ranks = grid_ranks;
    kernel.guard = guard_;
    for (std::int64_t first = 0; first < rows; first += most) {
      kernel.first_row = first;
      kernel.rows = std::min(most, rows - first);
      at(rank).launch(kernel);
    }
  }
  void launch_gather(peer_gather_params& kernel, int rank, std::int64_t rows) {
    kernel.flag_rows = options_.max_rows;
    for (int of = 0; of < size(); ++of) kernel.of[of].flags = flags_of(of, gather_flags);
    launch(kernel, rank, shares_gpu_ ? size() : 1, rows);
  }

  std::vector<std::shared_ptr<device>> devices_;
  device_group_options options_;
  bool shares_gpu_;
  rendezvous ranks_;
  rendezvous capturing_ranks_;            ///< nobody gives up
  std::shared_ptr<std::uint32_t> words_;  ///< peer_guard's
  peer_guard guard_;
  std::vector<rank_memory> memory_;
  std::vector<std::unique_ptr<device::mark>> ready_;  ///< each rank's
  std::unique_ptr<device::mark> joined_;              ///< rank 0's, after a grid for all
  std::vector<publication> published_;   ///< each rank's own; read between the meetings of a call
  std::vector<std::uint64_t> calls_;     ///< each rank's own; read while none is in a call
  std::atomic<bool> half_done_ = false;  ///< a rank went on after another had given up
  int rejoined_ = 0;
  std::mutex failure_mutex_;
  std::optional<error> first_failure_;  ///< of a capture; read after a meeting
};

class device_end final : public communicator, public joint_capture {
 public:
  device_end(std::shared_ptr<device_group> shared, int rank)
      : shared_(std::move(shared)), rank_(rank) {
    if (shared_->shares_gpu()) shared_->at(rank_).capture_jointly(this);
  }
  device_end(device_end const&) = delete;
  device_end& operator=(device_end const&) = delete;
  ~device_end() override { shared_->at(rank_).capture_jointly(nullptr); }

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return shared_->size(); }
  [[nodiscard]] char const* name() const noexcept override {
    return shared_->shares_gpu() ? "one-shot kernel for all ranks of one GPU"
                                 : "one-shot kernel over peer memory";
  }
  [[nodiscard]] std::size_t resident_bytes() const noexcept override {
    return shared_->resident_bytes(rank_);
  }
  [[nodiscard]] bool can_capture() const noexcept override { return true; }
  void sum_into(ops::tensor partial, ops::tensor x, norm_step const& then) override {
    shared_->sum(rank_, {partial, x, then, {}, {}});
  }
  void gather_columns(ops::tensor shard, ops::tensor full) override {
    shared_->gather(rank_, {shard, full, {}, {}, {}});
  }
  void merge_candidates(candidate_lists const& lists) override { shared_->merge(rank_, lists); }
  void max_over_ranks(ops::token_list best) override { shared_->max_over_ranks(rank_, best); }
  void check() override { shared_->check(); }
  void give_up() noexcept override { shared_->give_up(rank_); }
  [[nodiscard]] bool rejoin() noexcept override { return shared_->rejoin(rank_); }

  [[nodiscard]] std::unique_ptr<device_graph> capture(std::function<void()> const& work) override {
    return shared_->capture(rank_, work);
  }
  void replay(device_graph& graph) override { shared_->replay(rank_, graph); }

 private:
  std::shared_ptr<device_group> shared_;
  int rank_;
};

}  // namespace

std::vector<std::shared_ptr<communicator>> make_device_group(
    std::vector<std::shared_ptr<device>> devices, device_group_options const& options) {
  auto const shared = std::make_shared<device_group>(std::move(devices), options);
  std::vector<std::shared_ptr<communicator>> ends;
  for (int rank = 0; rank < shared->size(); ++rank) {
    ends.push_back(std::make_shared<device_end>(shared, rank));
  }
  return ends;
}

}  // namespace qwen38::parallel
