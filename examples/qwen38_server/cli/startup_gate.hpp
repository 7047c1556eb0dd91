// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

#include "cli/draft_depth.hpp"
#include "cli/load.hpp"
#include "engine/engine.hpp"

namespace qwen38::cli {

struct startup_options {
  draft_depth depth;
  bool depth_was_given = false;  ///< by a flag
  bool allow_emulated = false;
  std::filesystem::path report;  ///< where to write the report, whatever the verdict; "": nowhere
};

/// Sends a first request through the engine, gathers what was loaded and which routes it took, and
/// lets nothing pass that a user would be surprised by: design of the checks in startup_report.hpp.
/// @return the report, JSON text
/// @throws qwen38::error (internal) that names the surprise; (io) where the report cannot be
///         written
std::string pass_startup_gate(loaded_model const& loaded, engine::engine& engine,
                              model_flags const& flags, startup_options const& options);

}  // namespace qwen38::cli
