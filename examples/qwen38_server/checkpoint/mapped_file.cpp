// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <system_error>
#include <utility>

#include "support/error.hpp"

namespace qwen38::checkpoint {
namespace {

[[noreturn]] void fail(std::filesystem::path const& path, char const* what, int code) {
  error_kind const kind = code == ENOENT ? error_kind::not_found : error_kind::io;
  throw error(kind, path.string() + ": " + what + ": " + std::generic_category().message(code));
}

struct descriptor {
  int fd;
  ~descriptor() { ::close(fd); }
};

}  // namespace

mapped_file::mapped_file(std::filesystem::path const& path) {
  // O_NONBLOCK: opening a FIFO must not wait for a writer; it has no effect on a regular file.
  int const fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) fail(path, "cannot open the file", errno);
  descriptor const guard{fd};
  struct stat info {};
  if (::fstat(fd, &info) != 0) fail(path, "cannot read the file's size", errno);
  if (!S_ISREG(info.st_mode)) throw error(error_kind::io, path.string() + ": not a regular file");
  if (info.st_size == 0) return;  // mmap refuses length 0; an empty span says the same
  auto const size = static_cast<std::size_t>(info.st_size);
  void* const address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (address == MAP_FAILED) fail(path, "cannot map the file", errno);
  bytes_ = {static_cast<std::byte const*>(address), size};
}

mapped_file::~mapped_file() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

mapped_file::mapped_file(mapped_file&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

mapped_file& mapped_file::operator=(mapped_file&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

address_range::address_range(std::size_t bytes) {
  if (bytes == 0) return;
  void* const address =
      ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) {
    throw error(error_kind::io, std::to_string(bytes) + " bytes of addresses cannot be had: " +
                                    std::generic_category().message(errno));
  }
  bytes_ = {static_cast<std::byte const*>(address), bytes};
}

address_range::~address_range() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void release_pages(std::span<std::byte const> bytes) noexcept {
  auto const page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  auto const begin = reinterpret_cast<std::uintptr_t>(bytes.data());
  std::uintptr_t const first = (begin + page - 1) / page * page;
  std::uintptr_t const last = (begin + bytes.size()) / page * page;
  // Advice only: if the system refuses, the pages stay until it needs them.
  if (first < last) (void)::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

}  // namespace qwen38::checkpoint
