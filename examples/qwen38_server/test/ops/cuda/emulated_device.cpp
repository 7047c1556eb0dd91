// SPDX-License-Identifier: Apache-2.0
// The device of the CUDA backend on a CPU: kernels run on the emulator of the library's tests,
// which reports races in shared memory and collectives that lanes miss; device memory is the
// host's, each allocation of its own and not a byte longer, so that AddressSanitizer sees its ends.
// A launch that waits for those before it itself may not read before what one of them writes.

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <new>
#include <qpn/detail/device_prepack.hpp>
#include <type_traits>
#include <vector>

#include "support/devices.hpp"
#include "support/emulated_gemm.hpp"
#include "support/emulator/emulator.hpp"
#include "support/error.hpp"
#include "support/serial_lane.hpp"
#include "test/ops/cuda/kept_work.hpp"
#include "test/ops/cuda/running_writes.hpp"
#include "test/ops/cuda/test_device.hpp"

namespace qwen38::test {
namespace {

using namespace ops::cuda;

/// A lane of the backend's kernels. Global memory is the host's.
class backend_lane {
 public:
  /// @param running  what launches before this one write
  /// @param written  what this one does
  /// @param waits    whether its program waits for them itself
  backend_lane(qpn::test::emulated_lane& lane, running_writes const& running,
               running_writes& written, bool waits)
      : lane_(&lane), running_(&running), written_(&written), waited_(!waits) {}

  [[nodiscard]] int thread() const { return lane_->thread(); }
  [[nodiscard]] int block() const { return lane_->block(); }
  template <class T>
  [[nodiscard]] T load(T const* p) {
    require_aligned(p);
    require_complete(p, sizeof(T));
    return *p;
  }
  template <class T>
  void store(T* p, T value) {
    require_aligned(p);
    require_waited();
    written_->add(p, sizeof(T));
    *p = value;
  }
  template <class T>
  [[nodiscard]] T shared_load(int offset) {
    return lane_->template shared_load<T>(offset);
  }
  template <class T>
  void shared_store(int offset, T value) {
    lane_->shared_store(offset, value);
  }
  void sync_warp() { lane_->sync_warp(); }
  template <class T>
  [[nodiscard]] T load_volatile(T const* p) {
    return load(p);
  }
  void arrive_cluster() { lane_->arrive_cluster(); }
  void wait_cluster() { lane_->wait_cluster(); }
  void peer_store(int offset, float value) {
    lane_->cluster_store(lane_->cluster_rank() ^ 1, offset, value);
  }
  void sync_block_for_release() { lane_->sync_block(); }
  void store_release_system(std::uint64_t* p, std::uint64_t value) { store(p, value); }
  [[nodiscard]] std::uint64_t load_acquire_system(std::uint64_t const* p) {
    lane_->fence_device();  // now and then the turn of the CTA that is waited for
    return load(p);
  }
  [[nodiscard]] std::int64_t nanoseconds() { return ++clock_; }
  void sync_block() { lane_->sync_block(); }
  [[nodiscard]] std::uint32_t shuffle_xor(std::uint32_t value, int mask) {
    return lane_->shuffle_xor(value, mask);
  }
  std::uint64_t atomic_max(std::uint64_t* p, std::uint64_t value) {
    require_waited();
    std::uint64_t const old = *p;
    *p = value > old ? value : old;
    return old;
  }
  void wait_previous() { waited_ = true; }
  [[nodiscard]] bool has_waited() const { return waited_; }
  void fetch_ahead(byte_range /*range*/, std::size_t /*at*/) {}
  std::uint32_t atomic_wrap(std::uint32_t* p, std::uint32_t last) {
    require_waited();
    std::uint32_t const old = *p;
    *p = old >= last ? 0 : old + 1;
    return old;
  }
  [[nodiscard]] float fma(float a, float b, float c) { return std::fma(a, b, c); }
  [[nodiscard]] float exp(float x) { return std::exp(x); }
  [[nodiscard]] float exp2(float x) {
    float const y = std::exp2(x);
    return y < std::numeric_limits<float>::min() ? 0.0F : y;
  }
  [[nodiscard]] float sqrt(float x) { return std::sqrt(x); }
  [[nodiscard]] float log1p(float x) { return std::log1p(x); }
  void sine_cosine(double angle, float& sine, float& cosine) {
    sine = static_cast<float>(std::sin(angle));
    cosine = static_cast<float>(std::cos(angle));
  }
  [[nodiscard]] qpn::detail::float2_pair half_pair(std::uint32_t bits) {
    return {qpn::decode_f16(static_cast<std::uint16_t>(bits)),
            qpn::decode_f16(static_cast<std::uint16_t>(bits >> 16))};
  }
  [[nodiscard]] std::uint32_t convert_half2(float low, float high) {
    return qpn::encode_f16(low) | static_cast<std::uint32_t>(qpn::encode_f16(high)) << 16;
  }
  [[nodiscard]] std::uint32_t byte_permute(std::uint32_t a, std::uint32_t b,
                                           std::uint32_t selector) {
    return lane_->byte_permute(a, b, selector);
  }
  [[nodiscard]] bool any(bool condition) { return lane_->any(condition); }
  void mma_m16n8k16(float (&d)[4], std::uint32_t const (&a)[4], std::uint32_t const (&b)[2]) {
    lane_->mma_m16n8k16(d, a, b);
  }

  /// The place holds something else from now on, and the 16 bytes once they were waited for.
  void copy_async(int offset, void const* p, bool held) {
    using qpn::detail::word4;
    auto const* const from = static_cast<word4 const*>(p);
    require_aligned(from);
    if (held) require_complete(from, sizeof(word4));
    copies_.push_back({offset, held ? *from : word4{{0, 0, 0, 0}}});
    lane_->shared_store(offset, word4{{~0U, ~0U, ~0U, ~0U}});
  }
  void commit_copies() { groups_.push_back(copies_.size()); }
  template <int Groups>
  void wait_copies() {
    if (groups_.size() <= Groups) return;
    std::size_t const done = groups_[groups_.size() - Groups - 1];
    for (; arrived_ < done; ++arrived_) {
      lane_->shared_store(copies_[arrived_].offset, copies_[arrived_].value);
    }
  }

 private:
  struct pending_copy {
    int offset;
    qpn::detail::word4 value;
  };

  template <class T>
  static void require_aligned(T const* p) {
    if (reinterpret_cast<std::uintptr_t>(p) % alignof(T) == 0) return;
    throw error(error_kind::internal, "an access to global memory is not aligned");
  }

  void require_waited() const {
    if (waited_) return;
    throw error(error_kind::internal, "a launch writes before it waits for those before it");
  }
  void require_complete(void const* p, std::size_t bytes) const {
    if (waited_ || !running_->holds(p, bytes)) return;
    throw error(error_kind::internal,
                "a launch reads what one before it writes, before it waits for that");
  }

  qpn::test::emulated_lane* lane_;
  running_writes const* running_;
  running_writes* written_;
  bool waited_;
  std::vector<pending_copy> copies_;
  std::vector<std::size_t> groups_;  ///< copies up to each group's end
  std::size_t arrived_ = 0;
  std::int64_t clock_ = 0;
};

class emulated_device final : public device {
 public:
  explicit emulated_device(qpn::device_info const& info)
      : info_(info),
        name_("emulated sm_" + std::to_string(info.compute_capability) + ", " +
              std::to_string(info.sm_count) + " multiprocessors") {}

  [[nodiscard]] qpn::device_info const& info() const noexcept override { return info_; }
  [[nodiscard]] std::string const& name() const noexcept override { return name_; }

  [[nodiscard]] void* allocate(std::size_t bytes, std::string const& what) override {
    require_no_capture("an allocation");
    if (bytes > total_bytes) throw out_of_memory(what, bytes, total_bytes, total_bytes, name_);
    void* const memory = ::operator new (bytes, std::align_val_t{256});
    std::memset(memory, 0, bytes);
    places_.emplace(memory, ledger_.take(bytes, what));
    return memory;
  }
  void release(void* memory) noexcept override {
    auto const place = places_.find(memory);
    ledger_.give_back(place->second);
    places_.erase(place);
    ::operator delete (memory, std::align_val_t{256});
  }
  void reserve(std::size_t) override {}  // each allocation is of its own
  [[nodiscard]] memory_ledger const& memory() const noexcept override { return ledger_; }
  void clear(byte_lines to, std::size_t width, std::size_t height) override {
    end_.run_or_keep([=, this] {
      running_.clear();
      for (std::size_t i = 0; i < height; ++i) std::memset(line(to, i), 0, width);
    });
  }
  void copy(byte_lines to, byte_lines from, std::size_t width, std::size_t height) override {
    end_.run_or_keep([=, this] {
      running_.clear();
      copy_lines(to, from, width, height);
    });
  }
  void upload(void* to, void const* from, std::size_t bytes) override {
    require_no_capture("an upload");
    running_.clear();
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  void download(void* to, byte_lines from, std::size_t width, std::size_t height) override {
    require_no_capture("a download");
    running_.clear();
    ++waits_;
    copy_lines({to, width}, from, width, height);
  }
  void wait() override {
    require_no_capture("a wait");
    running_.clear();
    ++waits_;
  }
  [[nodiscard]] std::uint64_t waits() const noexcept override { return waits_; }

  [[nodiscard]] std::unique_ptr<device_graph> capture_alone(
      std::function<void()> const& work) override {
    require_no_capture("a capture");
    auto graph = std::make_unique<emulated_graph>();
    end_.begin(graph->work);
    try {
      work();
    } catch (...) {
      graph->work->drop();
      throw;
    }
    graph->work->end(end_.last());
    return graph;
  }
  void replay_alone(device_graph& graph) override {
    require_no_capture("a replay");
    running_.clear();
    static_cast<emulated_graph&>(graph).work->run();
  }

  void launch(kernel_params const& kernel) override {
    end_.run_or_keep(
        [this, kernel] { std::visit([this](auto const& params) { run(params); }, kernel); });
  }
  void init_workspace(linear_plan const& plan, qpn::workspace_view workspace) override {
    require_no_capture("a new workspace");
    std::visit(
        [&](auto const& of) {
          check(qpn::detail::check_workspace(of, workspace));
          std::memset(workspace.data, 0, qpn::detail::zero_bytes_of(of, workspace));
        },
        plan);
  }
  void gemm(linear_plan const& plan, qpn::gemm_args const& args,
            qpn::workspace_view workspace) override {
    std::visit(
        [&](auto const& of) {
          check(qpn::detail::check_gemm(of, args, workspace));
          end_.run_or_keep([this, of, args, workspace] {
            if (!args.beside_previous) running_.clear();
            note_output(of, args);
            bool const sliced = qpn::detail::is_sliced(of.layout, args.m);
            std::int64_t const rows = sliced ? qpn::gemm_max_m : std::max<std::int64_t>(args.m, 1);
            for (std::int64_t first = 0; first < args.m; first += rows) {
              qpn::gemm_args const part = sliced ? qpn::detail::slice_rows(of, args, first) : args;
              require_clean(qpn::test::emulate_gemm(of, part, workspace).report);
            }
          });
          if (args.census != nullptr) args.census->count(qpn::route(of, args.m));
        },
        plan);
  }
  // Work that is not kept is done when a call returns: where ranks are threads that have met,
  // nothing is left to wait for.
  [[nodiscard]] std::unique_ptr<mark> make_mark() override {
    return std::make_unique<emulated_mark>();
  }
  void record(mark& point) override { end_.record(static_cast<emulated_mark&>(point)); }
  void wait_for(mark const& point) override {
    end_.wait_for(static_cast<emulated_mark const&>(point));
  }
  [[nodiscard]] int ordinal() const noexcept override { return 0; }
  void reach(device const&) override {}
  [[nodiscard]] std::shared_ptr<std::uint32_t> make_host_words(std::size_t count) override {
    return {new std::uint32_t[count](), std::default_delete<std::uint32_t[]>()};
  }
  [[nodiscard]] void* stream() const noexcept override { return nullptr; }
  void prepack(qpn::packed_layout const& layout, qpn::weight_part const& rows,
               std::int64_t first_row, std::byte* out, qpn::prepack_report* report) override {
    qpn::status const unknown{qpn::status_code::unsupported_format, 0, "prepack: unknown format"};
    check(qpn::visit_format<qpn::status>(layout.format, unknown, [&](auto format) -> qpn::status {
      using format_type = decltype(format);
      qpn::detail::prepack_params const params{layout, rows, first_row, out, report};
      qpn::status const checked = qpn::detail::check_prepack<format_type>(params);
      if (!checked.ok()) return checked;
      qpn::test::run_serially(qpn::detail::units_of_rows<format_type>(layout, first_row, rows.n),
                              qpn::detail::word_threads, false, nullptr, [&](auto& lane) {
                                qpn::detail::prepack_program<format_type>(lane, params);
                              });
      return {};
    }));
  }

 private:
  static constexpr std::size_t total_bytes = std::size_t{1} << 30;

  static std::byte* line(byte_lines const& lines, std::size_t i) {
    return static_cast<std::byte*>(lines.data) + i * lines.pitch;
  }
  static void copy_lines(byte_lines to, byte_lines from, std::size_t width, std::size_t height) {
    for (std::size_t i = 0; i < height; ++i) std::memcpy(line(to, i), line(from, i), width);
  }
  void require_no_capture(char const* what) const {
    if (!end_.is_captured()) return;
    throw error(error_kind::internal, std::string(what) + " while a graph is captured");
  }
  static void check(qpn::status const& outcome) {
    if (!outcome.ok()) throw error(error_kind::internal, outcome.what);
  }
  static void require_clean(qpn::test::emulation_report const& report) {
    if (!report.ok()) throw error(error_kind::internal, "emulation: " + report.text());
  }

  template <class Plan>
  void note_output(Plan const& plan, qpn::gemm_args const& args) {
    auto const element = static_cast<std::size_t>(qpn::bits(plan.problem.y_type) / 8);
    for (std::int64_t row = 0; args.y != nullptr && row < args.m; ++row) {
      running_.add_range(
          static_cast<std::byte*>(args.y) + static_cast<std::size_t>(row * args.ldy) * element,
          static_cast<std::size_t>(qpn::columns_of_y(plan)) * element);
    }
  }

  template <class Params>
  void run(Params const& params) {
    if (params.blocks() == 0) return;
    bool constexpr waits = requires {
      Params::waits_itself;
    };
    running_writes written;
    qpn::test::emulation_options options;
    options.blocks = static_cast<int>(params.blocks());
    options.threads = Params::threads;
    options.shared_bytes = Params::shared_bytes;
    options.seed = ++launches_;
    options.order = qpn::test::cta_order::shuffled;
    if constexpr (requires { Params::blocks_meet; }) options.resident = options.blocks;
    if constexpr (requires { Params::cluster; }) {
      options.cluster = Params::cluster;
      options.resident = Params::cluster;
    }
    require_clean(qpn::test::emulate(options, [&](qpn::test::emulated_lane& lane) {
      backend_lane own(lane, running_, written, waits);
      run_program(own, params);
      if (!own.has_waited()) {
        throw error(error_kind::internal, "a thread ends without a wait for the launches before");
      }
    }));
    running_.add(written);
  }

  qpn::device_info const info_;
  std::string const name_;
  running_writes running_;
  std::uint64_t launches_ = 0;
  std::uint64_t waits_ = 0;
  stream_end end_;
  memory_ledger ledger_;
  std::map<void*, std::size_t> places_;
};

}  // namespace

std::unique_ptr<device> open_test_device(device_kind kind, int) {
  bool const hopper = kind == device_kind::with_tiles;
  qpn::device_info info = hopper ? qpn::test::hopper_h200() : qpn::test::volta_v100();
  info.sm_count = 3;
  return std::make_unique<emulated_device>(info);
}

int test_gpu_count() {
  return 1;
}

bool test_device_is_emulated() {
  return true;
}

}  // namespace qwen38::test
