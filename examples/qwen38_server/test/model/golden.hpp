// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace qwen38::test {

/// Arrays that an oracle computed: manifest.json and goldens.bin, raw little-endian fp32.
class golden {
 public:
  struct prompt {
    std::string name;
    std::vector<std::int32_t> ids;
    nlohmann::json fields;  ///< all the manifest says
  };

  explicit golden(std::filesystem::path const& directory) {
    std::ifstream text(directory / "manifest.json");
    manifest_ = nlohmann::json::parse(text);
    std::ifstream raw(directory / "goldens.bin", std::ios::binary);
    std::string const bytes((std::istreambuf_iterator<char>(raw)), {});
    if (bytes.size() != manifest_.at("bytes").get<std::size_t>())
      throw std::runtime_error("goldens.bin is cut short");
    for (auto const& tensor : manifest_.at("tensors")) {
      std::size_t count = 1;
      for (auto const& extent : tensor.at("shape")) count *= extent.get<std::size_t>();
      std::vector<float> values(count);
      bytes.copy(reinterpret_cast<char*>(values.data()), count * sizeof(float),
                 tensor.at("offset").get<std::size_t>());
      arrays_[tensor.at("name").get<std::string>()] = std::move(values);
    }
    for (auto const& one : manifest_.at("prompts")) {
      prompts_.push_back(
          {one.at("name").get<std::string>(), one.at("ids").get<std::vector<std::int32_t>>(), one});
    }
  }

  [[nodiscard]] std::vector<prompt> const& prompts() const { return prompts_; }
  [[nodiscard]] std::vector<float> const& array(std::string const& name) const {
    return arrays_.at(name);
  }
  [[nodiscard]] nlohmann::json const& manifest() const { return manifest_; }
  [[nodiscard]] bool has(std::string const& name) const { return arrays_.contains(name); }

 private:
  nlohmann::json manifest_;
  std::map<std::string, std::vector<float>> arrays_;
  std::vector<prompt> prompts_;
};

}  // namespace qwen38::test
