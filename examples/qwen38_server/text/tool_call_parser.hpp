// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tool_schema.hpp"

namespace qwen38::text {

/// What a piece of an answer adds to it.
struct tool_event {
  enum class kind {
    content,    ///< text for the user
    call,       ///< a call begins: text is the function's name
    arguments,  ///< more of the JSON text of the latest call's arguments
  };
  kind what = kind::content;
  int index = 0;  ///< of the call, from 0; 0 for content
  std::string text;
  bool operator==(tool_event const&) const = default;
};

/// Finds the calls in the text of an answer that may be cut anywhere; the events, neighbours of one
/// kind joined, do not depend on the cuts.
///
///     <tool_call>
///     <function=NAME>
///     <parameter=KEY>
///     VALUE
///     </parameter>
///     </function>
///     </tool_call>
///
/// A value loses one newline in front and one behind. What only a string can be is given out as it
/// comes; other values are held until their end, see parameter_json(). Also taken: a function
/// without <tool_call> if its name is known; several functions in one <tool_call>; a missing
/// </parameter> before the next parameter or before </function> and </tool_call>; a missing
/// </function> before </tool_call>. Of a text with calls, blanks in front of a call and at the end
/// are dropped. Everything else is content: a <tool_call> that names no function, text between the
/// parts of a call, a parameter that comes twice.
class tool_call_parser {
 public:
  explicit tool_call_parser(std::shared_ptr<tool_signatures const> tools)
      : tools_(std::move(tools)) {}

  /// Appends what `text` makes known.
  void push(std::string_view text, std::vector<tool_event>& out);

  /// Ends the text. complete: the model ended it, so an open call is closed as well as it can be;
  /// false: it was cut off, and the arguments of an open call stay cut off too, so that nobody runs
  /// half a call.
  void finish(bool complete, std::vector<tool_event>& out);

  /// Calls that have begun.
  [[nodiscard]] int calls() const noexcept { return calls_; }
  /// finish() has left the last call cut off.
  [[nodiscard]] bool is_cut() const noexcept { return is_cut_; }

 private:
  enum class state {
    text,
    opened,   // behind <tool_call>
    name,     // of the function
    between,  // parameters
    key,
    value,
    closed,  // behind </function>
  };
  enum class found {
    none,  // the held bytes begin nothing
    partly,
    tool_call,
    end_call,  // </tool_call>
    function,  // <function=, and in text the known name and > too
    end_function,
    parameter,
    end_parameter,
    next_parameter,  // in a value whose own end is missing
    end_all,         // in a value: the ends of function and call
  };

  [[nodiscard]] found look(std::string_view held) const;
  [[nodiscard]] found look_in_text(std::string_view held) const;
  [[nodiscard]] static found look_in_value(std::string_view rest);
  void take(found what, std::string_view held, std::vector<tool_event>& out);
  [[nodiscard]] bool plain(char c, std::vector<tool_event>& out);
  void value(char c, std::vector<tool_event>& out);
  void give_back(std::vector<tool_event>& out);
  void content(std::string_view text, std::vector<tool_event>& out);
  void arguments(std::string_view text, std::vector<tool_event>& out);
  void begin_call(std::string_view name, std::vector<tool_event>& out);
  void begin_value(std::vector<tool_event>& out);
  void end_value(std::vector<tool_event>& out);
  void end_call(std::vector<tool_event>& out);

  std::shared_ptr<tool_signatures const> tools_;
  state state_ = state::text;
  int calls_ = 0;
  bool is_cut_ = false;
  std::string held_;     // may be the beginning of a tag
  std::string blanks_;   // of the content: printed if content follows
  std::string raw_;      // since <tool_call>, until a function is named
  std::string name_;     // of a function or a parameter, so far
  bool in_tag_ = false;  // the function is inside a <tool_call>
  // Of the open call.
  tool_signature const* signature_ = nullptr;  // null: nothing is known
  std::vector<std::string> keys_;
  // Of the open value.
  json_types types_;
  bool at_start_ = false;  // a newline would be dropped
  bool repeated_ = false;  // its key was there before
  std::string value_;      // unless it is given out as it comes
};

}  // namespace qwen38::text
