// SPDX-License-Identifier: Apache-2.0
#include "ops/profiled_backend.hpp"

#include <chrono>

namespace qwen38::ops {
namespace {

constexpr int replays = 4;  // of one recording, for one wait

template <class Work>
double milliseconds(Work const& work) {
  auto const start = std::chrono::steady_clock::now();
  work();
  std::chrono::duration<double, std::milli> const took = std::chrono::steady_clock::now() - start;
  return took.count();
}

}  // namespace

/// The whole, and each class alone.
struct profiled_backend::class_recordings final : recording {
  std::unique_ptr<recording> whole;
  std::array<std::unique_ptr<recording>, op_class_count> alone;
};

profiled_backend::profiled_backend(std::unique_ptr<backend> inner) : inner_(std::move(inner)) {
  token_memory_ = inner_->make_tokens(1, token_);
}

profiled_backend::~profiled_backend() = default;

op_times profiled_backend::profile(std::function<void()> const& work) {
  times_ = {};
  profiles_ = true;
  try {
    work();
  } catch (...) {
    profiles_ = false;
    throw;
  }
  profiles_ = false;
  return times_;
}

op_times profiled_backend::profile_classes(std::function<void()> const& start,
                                           std::function<void()> const& work) {
  op_times times;
  auto const time_alone = [&](op_class const* only) {
    start();
    wait();
    only_ = only;
    double const ms = milliseconds([&] {
      work();
      wait();
    });
    only_ = nullptr;
    return ms;
  };
  try {
    times.whole = time_alone(nullptr);
    for (std::size_t i = 0; i < op_class_count; ++i) {
      auto const cls = static_cast<op_class>(i);
      times.of_class[i] = time_alone(&cls);
    }
  } catch (...) {
    only_ = nullptr;
    throw;
  }
  return times;
}

void profiled_backend::wait() {
  ranked_id ignored;
  inner_->read(token_, {&ignored, 1});
}

template <class Work>
void profiled_backend::run(op_class cls, Work const& work) {
  if (only_ != nullptr) {
    if (*only_ == cls) work();
  } else if (profiles_ && !inner_->records()) {
    times_.of_class[static_cast<std::size_t>(cls)] += milliseconds(work);
  } else {
    work();
  }
}

std::unique_ptr<recording> profiled_backend::record(std::function<void()> const& work) {
  auto made = std::make_unique<class_recordings>();
  made->whole = inner_->record(work);
  for (std::size_t i = 0; i < op_class_count; ++i) {
    auto const cls = static_cast<op_class>(i);
    only_ = &cls;
    try {
      made->alone[i] = inner_->record(work);
    } catch (...) {
      only_ = nullptr;
      throw;
    }
    only_ = nullptr;
  }
  return made;
}

void profiled_backend::replay(recording& recorded) {
  auto& of = static_cast<class_recordings&>(recorded);
  if (!profiles_) {
    inner_->replay(*of.whole);
    return;
  }
  auto const time_of = [this](recording& one) {
    wait();
    return milliseconds([&] {
             for (int n = 0; n < replays; ++n) inner_->replay(one);
             wait();
           }) /
           replays;
  };
  for (std::size_t i = 0; i < op_class_count; ++i) times_.of_class[i] += time_of(*of.alone[i]);
  times_.replays += time_of(*of.whole);  // last: what is read afterwards is its
  ++times_.count;
}

std::unique_ptr<linear> profiled_backend::make_linear(linear_source const& source) {
  auto made = inner_->make_linear(source);
  if (source.use == linear_use::head) head_ = made.get();
  return made;
}

void profiled_backend::embed(embedding const& table, pass const& p, token_list tokens, tensor y) {
  run(op_class::rows, [&] { inner_->embed(table, p, tokens, y); });
}
void profiled_backend::rms_norm(tensor x, constants const& w, float eps, tensor y) {
  run(op_class::norm, [&] { inner_->rms_norm(x, w, eps, y); });
}
void profiled_backend::matmul(linear const& w, tensor x, tensor y, bool accumulate) {
  run(&w == head_ ? op_class::head : op_class::gemm, [&] { inner_->matmul(w, x, y, accumulate); });
}
void profiled_backend::matmul_two(tensor x, linear const& w, tensor y, linear const& w2,
                                  tensor y2) {
  run(op_class::gemm, [&] { inner_->matmul_two(x, w, y, w2, y2); });
}
void profiled_backend::gate_up(linear const& w, tensor x, tensor y) {
  run(op_class::gemm, [&] { inner_->gate_up(w, x, y); });
}
void profiled_backend::copy(tensor x, tensor y) {
  run(op_class::rows, [&] { inner_->copy(x, y); });
}
void profiled_backend::move_rows(pass const& p, int list, tensor x, tensor y) {
  run(op_class::rows, [&] { inner_->move_rows(p, list, x, y); });
}
void profiled_backend::best_tokens(linear const& w, tensor x, std::int32_t first_id,
                                   std::int32_t end_id, token_list best) {
  run(op_class::head, [&] { inner_->best_tokens(w, x, first_id, end_id, best); });
}
void profiled_backend::choose_tokens(pass const& p, token_list tokens, tensor logits,
                                     std::int32_t valid, token_list chosen) {
  run(op_class::choice, [&] { inner_->choose_tokens(p, tokens, logits, valid, chosen); });
}
void profiled_backend::store_kv(kv_cache& cache, std::int64_t layer, pass const& p, tensor kv,
                                constants const& k_norm) {
  run(op_class::attention, [&] { inner_->store_kv(cache, layer, p, kv, k_norm); });
}
void profiled_backend::attention(kv_cache const& cache, std::int64_t layer, pass const& p,
                                 tensor q_gate, constants const& q_norm, tensor out) {
  run(op_class::attention, [&] { inner_->attention(cache, layer, p, q_gate, q_norm, out); });
}
void profiled_backend::store_and_attend(kv_cache& cache, std::int64_t layer, pass const& p,
                                        tensor kv, constants const& k_norm, tensor q_gate,
                                        constants const& q_norm, tensor out) {
  run(op_class::attention,
      [&] { inner_->store_and_attend(cache, layer, p, kv, k_norm, q_gate, q_norm, out); });
}
void profiled_backend::gdn(gdn_state& state, std::int64_t layer, pass const& p, tensor qkvz,
                           tensor ba, gdn_weights const& w, tensor out) {
  run(op_class::gdn, [&] { inner_->gdn(state, layer, p, qkvz, ba, w, out); });
}
void profiled_backend::gdn_keep(gdn_state& state, int lane, std::int64_t rows) {
  if (!profiles_) {
    inner_->gdn_keep(state, lane, rows);
    return;
  }
  wait();
  times_.keep += milliseconds([&] {
    inner_->gdn_keep(state, lane, rows);
    wait();
  });
}

}  // namespace qwen38::ops
