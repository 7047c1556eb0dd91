// SPDX-License-Identifier: Apache-2.0
// Fuzz target over safetensors files and headers. Links with libFuzzer, or with
// safetensors_fuzz_replay.cpp.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "checkpoint/safetensors.hpp"
#include "support/error.hpp"

namespace {

using qwen38::checkpoint::open_mode;

// A file is refused with a sentence or read within its bounds; anything else is a finding.
void parse(std::string const& image, open_mode mode) {
  auto const file = std::as_bytes(std::span(image));
  try {
    auto const contents = qwen38::checkpoint::parse_safetensors(file, "fuzz", mode);
    std::uint64_t sum = 0;
    unsigned touched = 0;
    for (auto const& tensor : contents.tensors) {
      sum += tensor.byte_count;
      if (mode == open_mode::headers_only ? !tensor.bytes.empty()
                                          : tensor.bytes.size() != tensor.byte_count) {
        std::abort();
      }
      for (std::byte const b : tensor.bytes) touched += std::to_integer<unsigned>(b);
    }
    if (sum != contents.data_bytes) std::abort();
    if (mode == open_mode::full && 8 + contents.header_bytes + sum != file.size()) std::abort();
    if (touched == ~0u) std::abort();  // keeps the reads alive
  } catch (qwen38::error const& failure) {
    if (std::string(failure.what()).rfind("fuzz: ", 0) != 0) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  std::string const input(reinterpret_cast<char const*>(data), size);
  // Once as a whole file, once as a header with the right length and 64 bytes of data.
  std::string length;
  for (unsigned i = 0; i < 8; ++i)
    length.push_back(static_cast<char>(std::uint64_t{size} >> (8 * i) & 0xff));
  for (open_mode const mode : {open_mode::full, open_mode::headers_only}) {
    parse(input, mode);
    parse(length + input + std::string(64, '\x01'), mode);
  }
  return 0;
}
