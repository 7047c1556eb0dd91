// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "parallel/communicator.hpp"

namespace qwen38::parallel {

/// The ends, in rank order, of a group whose ranks are threads of this process and whose tensors
/// every thread can read. Each rank publishes where its rows are and adds up all ranks' itself.
[[nodiscard]] std::vector<std::shared_ptr<communicator>> make_in_process_group(int size);

}  // namespace qwen38::parallel
