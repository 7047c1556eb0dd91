// SPDX-License-Identifier: Apache-2.0
#include "text/json_escape.hpp"

#include <cstddef>

namespace qwen38::text {

void append_json_escaped(std::string& out, std::string_view text) {
  constexpr std::string_view hex = "0123456789abcdef";
  std::size_t clean = 0;  // start of the run that needs no escape
  for (std::size_t i = 0; i < text.size(); ++i) {
    auto const byte = static_cast<unsigned char>(text[i]);
    if (byte >= 0x20 && byte != '"' && byte != '\\') continue;
    out.append(text, clean, i - clean);
    clean = i + 1;
    switch (byte) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\b': out += "\\b"; break;
      case '\f': out += "\\f"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default:
        out += "\\u00";
        out += hex[byte >> 4U];
        out += hex[byte & 15U];
    }
  }
  out.append(text, clean);
}

}  // namespace qwen38::text
