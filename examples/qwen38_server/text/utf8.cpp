// SPDX-License-Identifier: Apache-2.0
#include "text/utf8.hpp"

namespace qwen38::text {
namespace {

constexpr std::string_view replacement = "\xEF\xBF\xBD";

}  // namespace

void utf8_gate::begin(unsigned char byte, std::string& out) {
  if (byte < 0x80) {
    out.push_back(static_cast<char>(byte));
    return;
  }
  if (byte < 0xC2 || byte > 0xF4) {
    out.append(replacement);
    return;
  }
  length_ = byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
  lowest_ = byte == 0xE0 ? 0xA0 : byte == 0xF0 ? 0x90 : 0x80;
  highest_ = byte == 0xED ? 0x9F : byte == 0xF4 ? 0x8F : 0xBF;
  bytes_[0] = static_cast<char>(byte);
  held_ = 1;
}

void utf8_gate::push(std::string_view bytes, std::string& out) {
  for (char const c : bytes) {
    auto const byte = static_cast<unsigned char>(c);
    if (held_ == 0) {
      begin(byte, out);
      continue;
    }
    if (byte < lowest_ || byte > highest_) {
      out.append(replacement);
      held_ = 0;
      begin(byte, out);
      continue;
    }
    lowest_ = 0x80;
    highest_ = 0xBF;
    if (held_ + 1 == length_) {
      out.append(bytes_.data(), held_);
      out.push_back(c);
      held_ = 0;
    } else {
      bytes_[held_++] = c;
    }
  }
}

void utf8_gate::finish(std::string& out) {
  if (held_ > 0) {
    out.append(replacement);
    held_ = 0;
  }
}

std::string repair_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  utf8_gate gate;
  gate.push(bytes, out);
  gate.finish(out);
  return out;
}

char32_t next_scalar(std::string_view valid, std::size_t& position) noexcept {
  auto const byte = [&](std::size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(valid[position + i]));
  };
  char32_t const lead = byte(0);
  if (lead < 0x80) {
    position += 1;
    return lead;
  }
  std::size_t const length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  char32_t scalar = lead & (0xFFU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) scalar = scalar << 6 | (byte(i) & 0x3F);
  position += length;
  return scalar;
}

void append_utf8(char32_t scalar, std::string& out) {
  auto const put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (scalar < 0x80) {
    put(scalar);
    return;
  }
  if (scalar < 0x800) {
    put(0xC0 | scalar >> 6);
  } else {
    if (scalar < 0x10000) {
      put(0xE0 | scalar >> 12);
    } else {
      put(0xF0 | scalar >> 18);
      put(0x80 | (scalar >> 12 & 0x3F));
    }
    put(0x80 | (scalar >> 6 & 0x3F));
  }
  put(0x80 | (scalar & 0x3F));
}

}  // namespace qwen38::text
