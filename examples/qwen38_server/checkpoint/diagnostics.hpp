// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "support/error.hpp"

namespace qwen38::checkpoint {

enum class severity { warning, error };

/// One thing that is wrong with a checkpoint, as one sentence.
struct problem {
  severity level = severity::error;
  std::string sentence;
};

/// Where a check reports what it finds. A strict one throws the first error, as loading wants; a
/// collecting one keeps everything, as `inspect` wants, and the check goes on with a harmless
/// value.
class diagnostics {
 public:
  enum class mode { strict, collecting };
  explicit diagnostics(mode m) : mode_(m) {}

  /// @throws qwen38::error in strict mode.
  void fail(error_kind kind, std::string const& sentence) {
    if (mode_ == mode::strict) throw error(kind, sentence);
    problems_.push_back({severity::error, sentence});
  }
  void warn(std::string sentence) { problems_.push_back({severity::warning, std::move(sentence)}); }

  [[nodiscard]] std::vector<problem> const& problems() const noexcept { return problems_; }
  [[nodiscard]] std::size_t error_count() const noexcept {
    std::size_t count = 0;
    for (problem const& p : problems_) count += p.level == severity::error ? 1 : 0;
    return count;
  }

 private:
  mode mode_;
  std::vector<problem> problems_;
};

}  // namespace qwen38::checkpoint
