// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string_view>

namespace qwen38::checkpoint {

/// Which names a rule of the list below takes.
enum class name_match { prefix, suffix };

struct ignored_rule {
  name_match match;
  std::string_view text;
  std::string_view reason;

  [[nodiscard]] constexpr bool takes(std::string_view name) const noexcept {
    return match == name_match::prefix ? name.starts_with(text) : name.ends_with(text);
  }
};

/// The only tensors that a checkpoint may hold and the server does not use, each with its reason.
/// What a suffix takes is a scale, and only ignored beside a tensor of the same module that is
/// used.
inline constexpr std::array<ignored_rule, 5> ignored_rules = {{
    {name_match::prefix, "model.visual.", "vision tower: the server takes text only"},
    {name_match::suffix, ".input_scale",
     "static activation scale of W4A4 and W8A8: activations stay 16 bit here"},
    {name_match::suffix, ".input_global_scale", "the same in compressed-tensors, as a divisor"},
    {name_match::suffix, ".k_scale", "scale of an FP8 key cache: keys are cached in fp16 here"},
    {name_match::suffix, ".v_scale", "scale of an FP8 value cache: values are cached in fp16 here"},
}};

/// The rule that lets `name` go unused, or null.
[[nodiscard]] constexpr ignored_rule const* find_ignored_rule(std::string_view name) noexcept {
  for (ignored_rule const& rule : ignored_rules) {
    if (rule.takes(name)) return &rule;
  }
  return nullptr;
}

}  // namespace qwen38::checkpoint
