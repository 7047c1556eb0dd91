// SPDX-License-Identifier: Apache-2.0
#include "cli/model_source.hpp"

#include <stdlib.h>  // mkdtemp

#include <system_error>

#include "checkpoint/hub_revision.hpp"
#include "support/error.hpp"
#include "text/byte_vocabulary.hpp"

namespace qwen38::cli {
namespace {

constexpr std::string_view synthetic_scheme = "synth:";

std::filesystem::path make_temporary_directory() {
  std::string pattern = (std::filesystem::temp_directory_path() / "qwen38-synth-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) {
    throw error(error_kind::io, pattern + ": cannot be made");
  }
  return pattern;
}

}  // namespace

model_source::model_source(std::string const& model, checkpoint::open_mode mode) : mode_(mode) {
  if (!model.starts_with(synthetic_scheme)) {
    directory_ = model;
    auto const revision = checkpoint::find_hub_revision(directory_);
    name_ = revision && !revision->repository.empty()
                ? revision->repository
                : std::filesystem::weakly_canonical(directory_).filename().string();
    return;
  }
  name_ = model;
  synthetic_ = std::make_unique<checkpoint::synthetic_checkpoint>(
      std::string_view(model).substr(synthetic_scheme.size()), mode);
  directory_ = make_temporary_directory();
  synthetic_->write_documents(directory_, text::byte_tokenizer_json());
}

model_source::~model_source() {
  if (!synthetic_ || directory_.empty()) return;
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

std::shared_ptr<checkpoint::repository> model_source::open() const {
  if (synthetic_) {
    return std::make_shared<checkpoint::repository>(directory_, synthetic_->tensors(), mode_);
  }
  return std::make_shared<checkpoint::repository>(directory_, mode_);
}

}  // namespace qwen38::cli
