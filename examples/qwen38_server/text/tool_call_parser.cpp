// SPDX-License-Identifier: Apache-2.0
#include "text/tool_call_parser.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "text/json_escape.hpp"

namespace qwen38::text {
namespace {

constexpr std::string_view call_tag = "<tool_call>";
constexpr std::string_view call_end_tag = "</tool_call>";
constexpr std::string_view function_tag = "<function=";
constexpr std::string_view function_end_tag = "</function>";
constexpr std::string_view parameter_tag = "<parameter=";
constexpr std::string_view parameter_end_tag = "</parameter>";
constexpr std::size_t most_name_bytes = 256;
constexpr int most_blanks_between_ends = 16;

bool is_blank(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

bool ends_name(char c) {
  return is_blank(c) || c == '<' || c == '>';
}

json_types any_type() {
  return {true, true, true, true, true, true, true};
}

}  // namespace

void tool_call_parser::push(std::string_view text, std::vector<tool_event>& out) {
  held_ += text;
  std::size_t at = 0;
  while (at < held_.size()) {
    std::string_view const rest = std::string_view(held_).substr(at);
    std::size_t length = 1;
    found what = look(rest.substr(0, length));
    while (what == found::partly && length < rest.size()) what = look(rest.substr(0, ++length));
    if (what == found::partly) break;
    if (what != found::none) {
      take(what, rest.substr(0, length), out);
      at += length;
    } else if (plain(rest.front(), out)) {
      ++at;
    }
  }
  held_.erase(0, at);
}

void tool_call_parser::content(std::string_view text, std::vector<tool_event>& out) {
  if (text.empty()) return;
  if (out.empty() || out.back().what != tool_event::kind::content) {
    out.push_back({tool_event::kind::content, 0, {}});
  }
  out.back().text += text;
}

void tool_call_parser::arguments(std::string_view text, std::vector<tool_event>& out) {
  if (text.empty()) return;
  if (out.empty() || out.back().what != tool_event::kind::arguments) {
    out.push_back({tool_event::kind::arguments, calls_ - 1, {}});
  }
  out.back().text += text;
}

/// What the held bytes are in a text: the tag of a call, or a known function without one.
tool_call_parser::found tool_call_parser::look_in_text(std::string_view held) const {
  if (call_tag.starts_with(held)) return held == call_tag ? found::tool_call : found::partly;
  if (function_tag.starts_with(held)) return found::partly;
  if (!held.starts_with(function_tag)) return found::none;
  auto name = held.substr(function_tag.size());
  bool const whole = name.ends_with('>');
  if (whole) name.remove_suffix(1);
  auto const known = tools_->lower_bound(name);
  if (whole) return known != tools_->end() && known->first == name ? found::function : found::none;
  return known != tools_->end() && known->first.starts_with(name) ? found::partly : found::none;
}

tool_call_parser::found tool_call_parser::look_in_value(std::string_view rest) {
  bool const line = rest.starts_with('\n');
  if (line) rest.remove_prefix(1);
  if (rest.empty()) return found::partly;
  if (parameter_end_tag.starts_with(rest)) {
    return rest == parameter_end_tag ? found::end_parameter : found::partly;
  }
  if (line && parameter_tag.starts_with(rest)) {
    return rest == parameter_tag ? found::next_parameter : found::partly;
  }
  if (function_end_tag.starts_with(rest)) return found::partly;
  if (!rest.starts_with(function_end_tag)) return found::none;
  rest.remove_prefix(function_end_tag.size());
  for (int i = 0; i < most_blanks_between_ends && !rest.empty() && is_blank(rest.front()); ++i) {
    rest.remove_prefix(1);
  }
  if (!call_end_tag.starts_with(rest)) return found::none;
  return rest == call_end_tag ? found::end_all : found::partly;
}

tool_call_parser::found tool_call_parser::look(std::string_view held) const {
  if (state_ == state::text) return look_in_text(held);
  if (state_ == state::value) return look_in_value(held);
  struct entry {
    state at;
    std::string_view tag;
    found what;
  };
  constexpr auto tags =
      std::to_array<entry>({{state::opened, function_tag, found::function},
                            {state::between, parameter_tag, found::parameter},
                            {state::between, function_end_tag, found::end_function},
                            {state::between, call_end_tag, found::end_call},
                            {state::closed, call_end_tag, found::end_call},
                            {state::closed, function_tag, found::function}});
  for (entry const& one : tags) {
    if (one.at != state_ || !one.tag.starts_with(held)) continue;
    return one.tag == held ? one.what : found::partly;
  }
  return found::none;
}

void tool_call_parser::take(found what, std::string_view held, std::vector<tool_event>& out) {
  switch (what) {
    case found::none:
    case found::partly: break;
    case found::tool_call:
      raw_ = held;
      in_tag_ = true;
      state_ = state::opened;
      break;
    case found::function:
      if (state_ == state::text) {
        in_tag_ = false;
        auto const name = held.substr(function_tag.size());
        begin_call(name.substr(0, name.size() - 1), out);
      } else {
        if (state_ == state::closed) raw_.clear();
        raw_ += held;
        name_.clear();
        state_ = state::name;
      }
      break;
    case found::parameter:
      name_.clear();
      state_ = state::key;
      break;
    case found::end_function:
      end_call(out);
      state_ = in_tag_ ? state::closed : state::text;
      break;
    case found::end_call:
      if (state_ == state::between) end_call(out);
      state_ = state::text;
      break;
    case found::end_parameter:
      end_value(out);
      state_ = state::between;
      break;
    case found::next_parameter:
      end_value(out);
      name_.clear();
      state_ = state::key;
      break;
    case found::end_all:
      end_value(out);
      end_call(out);
      state_ = state::text;
      break;
  }
}

/// A byte that begins no tag. false: it changed the state and is still to be read.
bool tool_call_parser::plain(char c, std::vector<tool_event>& out) {
  switch (state_) {
    case state::text:
      if (is_blank(c)) {
        blanks_ += c;
        return true;
      }
      content(std::exchange(blanks_, {}), out);
      content({&c, 1}, out);
      return true;
    case state::opened:
      if (!is_blank(c)) {
        give_back(out);
        return false;
      }
      raw_ += c;
      return true;
    case state::name:
      if (c == '>' && !name_.empty()) {
        begin_call(name_, out);
        return true;
      }
      if (ends_name(c) || name_.size() == most_name_bytes) {
        give_back(out);
        return false;
      }
      raw_ += c;
      name_ += c;
      return true;
    case state::between:
      if (!is_blank(c)) content({&c, 1}, out);
      return true;
    case state::key:
      if (c == '>' && !name_.empty()) {
        begin_value(out);
        return true;
      }
      if (ends_name(c) || name_.size() == most_name_bytes) {
        content(std::string(parameter_tag) + name_, out);
        state_ = state::between;
        return false;
      }
      name_ += c;
      return true;
    case state::value:
      if (std::exchange(at_start_, false) && c == '\n') return true;
      value(c, out);
      return true;
    case state::closed:
      if (is_blank(c)) return true;
      state_ = state::text;
      return false;
  }
  return true;
}

void tool_call_parser::value(char c, std::vector<tool_event>& out) {
  if (repeated_) {
    content({&c, 1}, out);
  } else if (types_.only_string()) {
    std::string escaped;
    append_json_escaped(escaped, {&c, 1});
    arguments(escaped, out);
  } else {
    value_ += c;
  }
}

/// What looked like a call is text after all.
void tool_call_parser::give_back(std::vector<tool_event>& out) {
  state_ = state::text;
  for (char const c : std::exchange(raw_, {})) static_cast<void>(plain(c, out));
}

void tool_call_parser::begin_call(std::string_view name, std::vector<tool_event>& out) {
  out.push_back({tool_event::kind::call, calls_, std::string(name)});
  ++calls_;
  auto const known = tools_->find(name);
  signature_ = known != tools_->end() ? &known->second : nullptr;
  keys_.clear();
  blanks_.clear();
  raw_.clear();
  state_ = state::between;
}

void tool_call_parser::begin_value(std::vector<tool_event>& out) {
  at_start_ = true;
  value_.clear();
  state_ = state::value;
  repeated_ = std::ranges::find(keys_, name_) != keys_.end();
  if (repeated_) {
    content(std::string(parameter_tag) + name_ + ">\n", out);
    return;
  }
  types_ = any_type();
  if (signature_ != nullptr) {
    auto const known = signature_->parameters.find(name_);
    types_ = known != signature_->parameters.end() ? known->second : signature_->others;
  }
  std::string text = keys_.empty() ? "{\"" : ", \"";
  append_json_escaped(text, name_);
  text += "\": ";
  if (types_.only_string()) text += '"';
  arguments(text, out);
  keys_.push_back(name_);
}

void tool_call_parser::end_value(std::vector<tool_event>& out) {
  if (repeated_) {
    content(std::string("\n").append(parameter_end_tag), out);
  } else if (types_.only_string()) {
    arguments("\"", out);
  } else {
    arguments(parameter_json(value_, types_), out);
  }
}

void tool_call_parser::end_call(std::vector<tool_event>& out) {
  arguments(keys_.empty() ? "{}" : "}", out);
}

void tool_call_parser::finish(bool complete, std::vector<tool_event>& out) {
  std::string const held = std::exchange(held_, {});
  bool const in_call = state_ == state::between || state_ == state::key || state_ == state::value;
  is_cut_ = in_call && !complete;
  switch (state_) {
    case state::text:
      for (char const c : held) static_cast<void>(plain(c, out));
      if (calls_ == 0) content(blanks_, out);
      break;
    case state::opened:
    case state::name:
      give_back(out);
      for (char const c : held) static_cast<void>(plain(c, out));
      if (calls_ == 0) content(blanks_, out);
      break;
    case state::key:
    case state::between:
      if (!complete) break;
      content(state_ == state::key ? std::string(parameter_tag) + name_ : held, out);
      end_call(out);
      break;
    case state::value:
      // What is held is the beginning of an end, unless the text was cut off there.
      if (!complete) {
        for (char const c : held) value(c, out);
        break;
      }
      end_value(out);
      end_call(out);
      break;
    case state::closed: break;
  }
  blanks_.clear();
  state_ = state::text;
}

}  // namespace qwen38::text
