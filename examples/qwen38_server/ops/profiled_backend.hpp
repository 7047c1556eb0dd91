// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "ops/backend.hpp"

namespace qwen38::ops {

/// Classes of operations that a round's time is divided among.
enum class op_class : std::uint8_t { gemm, head, attention, gdn, norm, rows, choice };
inline constexpr std::size_t op_class_count = 7;
[[nodiscard]] constexpr std::string_view to_string(op_class one) noexcept {
  constexpr std::array<std::string_view, op_class_count> names = {
      "gemm", "head", "attention", "gdn", "norm", "rows", "choice"};
  return names[static_cast<std::size_t>(one)];
}

/// Milliseconds while profile() ran.
struct op_times {
  std::array<double, op_class_count> of_class{};
  double keep = 0;         ///< gdn_keep(), with a wait for it
  double replays = 0;      ///< of whole recordings
  std::int64_t count = 0;  ///< of them; 0 where the backend records nothing
  double whole = 0;        ///< of profile_classes(): all classes together
};

/// A backend that can say where its time goes. Where work is recorded, each class of operations is
/// recorded once more, alone, and a profiled replay also times these: so a class has the time of
/// its own launches, one after the other in a graph. What the whole takes beyond their sum are
/// gaps; less than the sum, launches that overlap. Where nothing is recorded every operation is
/// timed by the host's clock, for which a device has to be one that returns when its work is done.
class profiled_backend : public backend {
 public:
  explicit profiled_backend(std::unique_ptr<backend> inner);
  ~profiled_backend() override;

  /// Runs `work` and returns the times of what it did. Results of recorded work mean nothing then:
  /// its operations run several times.
  [[nodiscard]] op_times profile(std::function<void()> const& work);

  /// The times of `work`, which is not recorded: it is done once as it is, and once for each class
  /// without the operations of the others, after `start` each time. The device is waited for before
  /// and after, so where the host queues faster than the device works a class has the time of its
  /// operations on the device. Results mean nothing then.
  [[nodiscard]] op_times profile_classes(std::function<void()> const& start,
                                         std::function<void()> const& work);

  [[nodiscard]] std::string name() const override { return inner_->name(); }
  [[nodiscard]] std::vector<route_count> routes() const override { return inner_->routes(); }
  [[nodiscard]] std::string attention_route() const override { return inner_->attention_route(); }
  [[nodiscard]] work_counts counts() const override { return inner_->counts(); }
  std::unique_ptr<storage> make_tensor(row_kind kind, std::int64_t rows, std::int64_t cols,
                                       tensor& view) override {
    return inner_->make_tensor(kind, rows, cols, view);
  }
  std::unique_ptr<embedding> make_embedding(std::span<std::byte const> rows, qpn::dtype type,
                                            std::int64_t cols) override {
    return inner_->make_embedding(rows, type, cols);
  }
  std::unique_ptr<linear> make_linear(linear_source const& source) override;
  std::unique_ptr<constants> make_constants(std::span<float const> values) override {
    return inner_->make_constants(values);
  }
  std::unique_ptr<kv_cache> make_kv_cache(attention_shape const& shape, std::int64_t layers,
                                          std::int64_t pages) override {
    return inner_->make_kv_cache(shape, layers, pages);
  }
  std::unique_ptr<gdn_state> make_gdn_state(gdn_shape const& shape, std::int64_t layers,
                                            std::int64_t lanes, std::int64_t max_tentative_rows,
                                            std::int64_t snapshots) override {
    return inner_->make_gdn_state(shape, layers, lanes, max_tentative_rows, snapshots);
  }
  std::unique_ptr<storage> make_tokens(std::int64_t count, token_list& view) override {
    return inner_->make_tokens(count, view);
  }
  std::vector<std::unique_ptr<pass>> make_passes(std::span<pass_limits const> limits) override {
    return inner_->make_passes(limits);
  }
  void set_passes(std::span<pass_setting const> settings) override { inner_->set_passes(settings); }
  [[nodiscard]] bool records() const noexcept override { return inner_->records(); }
  std::unique_ptr<recording> record(std::function<void()> const& work) override;
  void replay(recording& recorded) override;

  void embed(embedding const& table, pass const& p, token_list tokens, tensor y) override;
  void rms_norm(tensor x, constants const& w, float eps, tensor y) override;
  [[nodiscard]] tensor input_rows(linear const& w, tensor x, std::int64_t rows) const override {
    return inner_->input_rows(w, x, rows);
  }
  void matmul(linear const& w, tensor x, tensor y, bool accumulate) override;
  void matmul_two(tensor x, linear const& w, tensor y, linear const& w2, tensor y2) override;
  void read_ahead(linear const& w, std::size_t most_bytes) override {
    inner_->read_ahead(w, most_bytes);
  }
  void gate_up(linear const& w, tensor x, tensor y) override;
  void copy(tensor x, tensor y) override;
  void move_rows(pass const& p, int list, tensor x, tensor y) override;
  void best_tokens(linear const& w, tensor x, std::int32_t first_id, std::int32_t end_id,
                   token_list best) override;
  void choose_tokens(pass const& p, token_list tokens, tensor logits, std::int32_t valid,
                     token_list chosen) override;
  void store_kv(kv_cache& cache, std::int64_t layer, pass const& p, tensor kv,
                constants const& k_norm) override;
  void store_and_attend(kv_cache& cache, std::int64_t layer, pass const& p, tensor kv,
                        constants const& k_norm, tensor q_gate, constants const& q_norm,
                        tensor out) override;
  void attention(kv_cache const& cache, std::int64_t layer, pass const& p, tensor q_gate,
                 constants const& q_norm, tensor out) override;
  void gdn(gdn_state& state, std::int64_t layer, pass const& p, tensor qkvz, tensor ba,
           gdn_weights const& w, tensor out) override;
  void gdn_keep(gdn_state& state, int lane, std::int64_t rows) override;
  void gdn_reset(gdn_state& state, int lane) override { inner_->gdn_reset(state, lane); }
  void gdn_save(gdn_state& state, int lane, std::int64_t snapshot) override {
    inner_->gdn_save(state, lane, snapshot);
  }
  void gdn_load(gdn_state& state, int lane, std::int64_t snapshot) override {
    inner_->gdn_load(state, lane, snapshot);
  }
  void read(tensor x, std::span<float> out) override { inner_->read(x, out); }
  void read(token_list tokens, std::span<ranked_id> out) override { inner_->read(tokens, out); }

 private:
  struct class_recordings;

  template <class Work>
  void run(op_class cls, Work const& work);
  void wait();

  std::unique_ptr<backend> inner_;
  std::unique_ptr<storage> token_memory_;
  token_list token_;  ///< read to wait for the device
  linear const* head_ = nullptr;
  bool profiles_ = false;
  op_class const* only_ = nullptr;  ///< while one class is recorded or done alone
  op_times times_;
};

}  // namespace qwen38::ops
