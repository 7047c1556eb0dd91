// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/safetensors_writer.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "checkpoint/message_text.hpp"
#include "checkpoint/safetensors.hpp"
#include "support/error.hpp"

namespace qwen38::checkpoint {
namespace {

std::uint64_t checked_size(tensor_info const& tensor) {
  auto product = static_cast<std::uint64_t>(dtype_bytes(tensor.dtype));
  for (std::int64_t const extent : tensor.shape) {
    if (extent < 0 ||
        __builtin_mul_overflow(product, static_cast<std::uint64_t>(extent), &product) ||
        product > std::uint64_t{1} << 62) {
      throw error(error_kind::invalid_argument,
                  "tensor " + in_quotes(tensor.name) + ": the size of " +
                      describe(tensor.dtype, tensor.shape) + " is negative or overflows");
    }
  }
  return product;
}

}  // namespace

safetensors_writer::safetensors_writer(std::filesystem::path path, std::vector<tensor_info> tensors,
                                       std::map<std::string, std::string> const& metadata)
    : path_(std::move(path)) {
  std::stable_sort(tensors.begin(), tensors.end(), [](tensor_info const& a, tensor_info const& b) {
    return dtype_bytes(a.dtype) > dtype_bytes(b.dtype);
  });
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t offset = 0;
  for (tensor_info const& tensor : tensors) {
    std::uint64_t const bytes = checked_size(tensor);
    if (tensor.name.empty() || tensor.name == "__metadata__" ||
        !slots_.emplace(tensor.name, slot{offset, bytes, 0}).second) {
      throw error(error_kind::invalid_argument, path_.string() + ": the tensor name " +
                                                    in_quotes(tensor.name) +
                                                    " is empty, reserved or used twice");
    }
    header[tensor.name] = {{"dtype", dtype_name(tensor.dtype)},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');

  fd_ = ::open(part_path().c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd_ < 0) {
    throw error(error_kind::io, part_path().string() + ": cannot create the file: " +
                                    std::generic_category().message(errno));
  }
  std::byte length[8];
  for (unsigned i = 0; i < 8; ++i) {
    length[i] = static_cast<std::byte>(std::uint64_t{text.size()} >> (8 * i));
  }
  std::uint64_t const data_begin = 8 + text.size();
  try {
    write_at(0, length);
    write_at(8, std::as_bytes(std::span(text)));
    if (::ftruncate(fd_, static_cast<off_t>(data_begin + offset)) != 0) {
      throw error(error_kind::io, part_path().string() + ": cannot extend the file to " +
                                      std::to_string(data_begin + offset) +
                                      " bytes: " + std::generic_category().message(errno));
    }
  } catch (...) {
    ::close(fd_);
    ::unlink(part_path().c_str());
    throw;
  }
  for (auto& [name, place] : slots_) place.begin += data_begin;
}

safetensors_writer::~safetensors_writer() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink((path_.string() + ".part").c_str());
}

void safetensors_writer::append(std::string_view tensor, std::span<std::byte const> bytes) {
  slot& place = find(tensor);
  if (bytes.size() > place.bytes - place.written) {
    throw error(error_kind::invalid_argument,
                path_.string() + ": tensor " + in_quotes(tensor) + " takes " +
                    std::to_string(place.bytes) + " bytes, but " +
                    std::to_string(place.written + bytes.size()) + " were given");
  }
  write_at(place.begin + place.written, bytes);
  place.written += bytes.size();
}

void safetensors_writer::leave_zero(std::string_view tensor) {
  slot& place = find(tensor);
  place.written = place.bytes;
}

void safetensors_writer::finish() {
  for (auto const& [name, place] : slots_) {
    if (place.written != place.bytes) {
      throw error(error_kind::invalid_argument, path_.string() + ": tensor " + in_quotes(name) +
                                                    " got " + std::to_string(place.written) +
                                                    " of its " + std::to_string(place.bytes) +
                                                    " bytes");
    }
  }
  int const closed = ::close(std::exchange(fd_, -1));
  if (closed != 0 || ::rename(part_path().c_str(), path_.c_str()) != 0) {
    int const code = errno;
    ::unlink(part_path().c_str());
    throw error(error_kind::io, path_.string() + ": cannot finish the file: " +
                                    std::generic_category().message(code));
  }
}

safetensors_writer::slot& safetensors_writer::find(std::string_view tensor) {
  auto const found = slots_.find(std::string(tensor));
  if (found == slots_.end()) {
    throw error(error_kind::invalid_argument,
                path_.string() + ": tensor " + in_quotes(tensor) + " was not declared");
  }
  return found->second;
}

void safetensors_writer::write_at(std::uint64_t offset, std::span<std::byte const> bytes) {
  while (!bytes.empty()) {
    ssize_t const wrote = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) {
      throw error(error_kind::io, part_path().string() + ": cannot write: " +
                                      std::generic_category().message(wrote < 0 ? errno : ENOSPC));
    }
    offset += static_cast<std::uint64_t>(wrote);
    bytes = bytes.subspan(static_cast<std::size_t>(wrote));
  }
}

std::filesystem::path safetensors_writer::part_path() const {
  return path_.string() + ".part";
}

}  // namespace qwen38::checkpoint
