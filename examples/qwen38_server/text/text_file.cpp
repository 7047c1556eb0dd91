// SPDX-License-Identifier: Apache-2.0
#include "text/text_file.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include "support/error.hpp"

namespace qwen38::text {

std::string read_text(std::filesystem::path const& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file) {
    throw error(error_kind::io, path.string() + ": cannot be read: " + std::strerror(errno));
  }
  return text;
}

}  // namespace qwen38::text
