// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/nccl.hpp"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nccl.h>

#include <mutex>
#include <string>

#include "support/error.hpp"

namespace qwen38::ops::cuda {
namespace {

/// The functions of the shared library, which a server on one GPU does without.
class nccl_library {
 public:
  nccl_library() {
    void* const library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      throw error(error_kind::unavailable,
                  std::string("NCCL: the library was not found (") + dlerror() + ")");
    }
    find(library, "ncclGetErrorString", error_string);
    find(library, "ncclCommInitAll", init_all);
    find(library, "ncclCommDestroy", destroy);
    find(library, "ncclCommAbort", abort);
    find(library, "ncclCommGetAsyncError", async_error);
    find(library, "ncclAllGather", all_gather);
    find(library, "ncclAllReduce", all_reduce);
    find(library, "ncclSend", send);
    find(library, "ncclRecv", receive);
    find(library, "ncclGroupStart", group_start);
    find(library, "ncclGroupEnd", group_end);
  }

  void check(ncclResult_t outcome, char const* what) const {
    if (outcome == ncclSuccess) return;
    throw error(error_kind::internal,
                std::string("NCCL: ") + what + " failed (" + error_string(outcome) + ")");
  }

  decltype(&ncclGetErrorString) error_string = nullptr;
  decltype(&ncclCommInitAll) init_all = nullptr;
  decltype(&ncclCommDestroy) destroy = nullptr;
  decltype(&ncclCommAbort) abort = nullptr;
  decltype(&ncclCommGetAsyncError) async_error = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) receive = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;

 private:
  template <class Function>
  static void find(void* library, char const* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    if (function != nullptr) return;
    throw error(error_kind::unavailable,
                std::string("NCCL: the library has no ") + name + ", expected NCCL 2");
  }
};

class nccl_collectives final : public collectives {
 public:
  nccl_collectives(std::shared_ptr<nccl_library const> library, std::shared_ptr<device> on,
                   ncclComm_t communicator, int rank, int ranks)
      : library_(std::move(library)),
        device_(std::move(on)),
        communicator_(communicator),
        rank_(rank),
        ranks_(ranks) {}
  nccl_collectives(nccl_collectives const&) = delete;
  nccl_collectives& operator=(nccl_collectives const&) = delete;
  ~nccl_collectives() override {
    if (communicator_ != nullptr) static_cast<void>(library_->destroy(communicator_));
  }

  void all_gather(void const* own, void* all, std::int64_t count) override {
    call("an all-gather", [&] {
      return library_->all_gather(own, all, static_cast<std::size_t>(count), ncclInt32,
                                  communicator_, stream());
    });
  }
  void gather_to_first(void const* own, void* all, std::int64_t count) override {
    auto const words = static_cast<std::size_t>(count);
    call("a gather", [&] {
      ncclResult_t outcome = library_->group_start();
      if (outcome == ncclSuccess) {
        outcome = library_->send(own, words, ncclInt32, 0, communicator_, stream());
      }
      for (int from = 0; rank_ == 0 && outcome == ncclSuccess && from < ranks_; ++from) {
        outcome = library_->receive(static_cast<std::int32_t*>(all) + from * count, words,
                                    ncclInt32, from, communicator_, stream());
      }
      ncclResult_t const ended = library_->group_end();
      return outcome == ncclSuccess ? ended : outcome;
    });
  }
  void all_reduce(float* values, std::int64_t count) override {
    call("an all-reduce", [&] {
      return library_->all_reduce(values, values, static_cast<std::size_t>(count), ncclFloat32,
                                  ncclSum, communicator_, stream());
    });
  }
  void check() override {
    ncclResult_t found = ncclSuccess;
    call("to ask for errors", [&] { return library_->async_error(communicator_, &found); });
    if (found != ncclInProgress) library_->check(found, "a collective operation");
  }
  void abort() noexcept override {
    std::scoped_lock const lock(mutex_);
    if (communicator_ == nullptr) return;
    static_cast<void>(library_->abort(communicator_));  // frees it, too
    communicator_ = nullptr;
  }

 private:
  [[nodiscard]] cudaStream_t stream() const { return static_cast<cudaStream_t>(device_->stream()); }

  template <class Call>
  void call(char const* what, Call const& made) {
    std::scoped_lock const lock(mutex_);
    if (communicator_ == nullptr) throw error(error_kind::internal, "NCCL: it was aborted before");
    if (cudaSetDevice(device_->ordinal()) != cudaSuccess) {
      throw error(error_kind::internal, "CUDA: to choose the GPU failed");
    }
    library_->check(made(), what);
  }

  std::shared_ptr<nccl_library const> library_;
  std::shared_ptr<device> device_;
  std::mutex mutex_;  ///< of the communicator, which another thread may abort
  ncclComm_t communicator_;
  int rank_;
  int ranks_;
};

}  // namespace

std::vector<std::shared_ptr<collectives>> open_nccl(
    std::vector<std::shared_ptr<device>> const& devices) {
  auto const library = std::make_shared<nccl_library const>();
  std::vector<int> ordinals;
  for (auto const& one : devices) ordinals.push_back(one->ordinal());
  int const ranks = static_cast<int>(devices.size());
  std::vector<ncclComm_t> communicators(devices.size());
  library->check(library->init_all(communicators.data(), ranks, ordinals.data()),
                 "to start a group of GPUs");
  std::vector<std::shared_ptr<collectives>> ends;
  for (int rank = 0; rank < ranks; ++rank) {
    auto const index = static_cast<std::size_t>(rank);
    ends.push_back(std::make_shared<nccl_collectives>(library, devices[index], communicators[index],
                                                      rank, ranks));
  }
  return ends;
}

}  // namespace qwen38::ops::cuda
