// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/convert.hpp"

#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <qpn/quantize.hpp>
#include <system_error>
#include <utility>

#include "checkpoint/inspect.hpp"
#include "checkpoint/json_file.hpp"
#include "checkpoint/message_text.hpp"
#include "checkpoint/safetensors_writer.hpp"

namespace qwen38::checkpoint {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr std::int64_t group_k = 16;
constexpr std::uint64_t piece_bytes = 4 << 20;  // of fp32 rows, or of bytes to copy
constexpr char const* index_name = "model.safetensors.index.json";

// One tensor of the input and what becomes of it.
struct planned {
  tensor_view const* source = nullptr;
  std::optional<quant_class> cls;  // empty: copied
  std::string module;              // of a quantised one
  std::vector<tensor_info> out;
  std::uint64_t bytes = 0;  // of `out`
};

std::uint64_t size_of(tensor_info const& info) {
  auto bytes = static_cast<std::uint64_t>(dtype_bytes(info.dtype));
  for (std::int64_t const extent : info.shape) bytes *= static_cast<std::uint64_t>(extent);
  return bytes;
}

// No entry of a header takes more: {"name":{"dtype":"...","shape":[...],"data_offsets":[...]}},
// where an escaped byte of the name takes six.
std::uint64_t header_bound(tensor_info const& info) {
  return 6 * info.name.size() + 128 + 21 * info.shape.size();
}
constexpr std::uint64_t header_base = 128;  // length, metadata, padding

std::optional<quant_class> target_of(weight_group group) {
  switch (group) {
    case weight_group::mlp:
    case weight_group::head: return quant_class::nvfp4;
    case weight_group::attention:
    case weight_group::gdn: return quant_class::fp8_tensor;
    default: return std::nullopt;
  }
}

planned plan_tensor(tensor_view const& source, model_entry const* entry) {
  planned plan;
  plan.source = &source;
  if (entry != nullptr) plan.cls = target_of(entry->group);
  if (!plan.cls) {
    plan.out = {{source.name, source.dtype, source.shape}};
  } else {
    std::int64_t const n = entry->shape[0];
    std::int64_t const k = entry->shape[1];
    plan.module = entry->name;
    if (*plan.cls == quant_class::nvfp4) {
      if (k % group_k != 0) {
        throw error(error_kind::unsupported,
                    "linear " + in_quotes(plan.module) +
                        ": NVFP4 needs inputs in groups of 16, but the layer has " +
                        std::to_string(k));
      }
      plan.out = {{plan.module + ".weight", storage_dtype::u8, {n, k / 2}},
                  {plan.module + ".weight_scale", storage_dtype::f8_e4m3, {n, k / group_k}},
                  {plan.module + ".weight_scale_2", storage_dtype::f32, {}}};
    } else {
      plan.out = {{plan.module + ".weight", storage_dtype::f8_e4m3, {n, k}},
                  {plan.module + ".weight_scale", storage_dtype::f32, {}}};
    }
  }
  for (tensor_info const& info : plan.out) plan.bytes += size_of(info);
  return plan;
}

// In the order of the input's files and of their data, so that each is read once from front to end.
std::vector<planned> plan_tensors(repository const& tensors, model_config const& config) {
  std::vector<model_entry> const model = list_model(config, text_prefix(tensors));
  std::map<std::string, model_entry const*> by_weight;
  for (model_entry const& entry : model) {
    if (entry.is_linear) by_weight[entry.name + ".weight"] = &entry;
  }
  std::vector<planned> plan;
  for (tensor_view const* const tensor : tensors.tensors()) {
    auto const found = by_weight.find(tensor->name);
    plan.push_back(plan_tensor(*tensor, found == by_weight.end() ? nullptr : found->second));
  }
  return plan;
}

// Consecutive tensors until the next one would not fit.
std::vector<std::vector<planned const*>> plan_shards(std::vector<planned> const& plan,
                                                     std::uint64_t limit) {
  std::vector<std::vector<planned const*>> shards;
  std::uint64_t used = 0;
  for (planned const& one : plan) {
    std::uint64_t needed = one.bytes;
    for (tensor_info const& info : one.out) needed += header_bound(info);
    if (needed + header_base > limit) {
      throw error(error_kind::invalid_argument,
                  "tensor " + in_quotes(one.source->name) + " needs a shard of " +
                      std::to_string(needed + header_base) + " bytes, but the limit is " +
                      std::to_string(limit));
    }
    if (shards.empty() || used + needed > limit) {
      shards.emplace_back();
      used = header_base;
    }
    shards.back().push_back(&one);
    used += needed;
  }
  return shards;
}

std::string shard_name(std::size_t index, std::size_t count) {
  char text[64];
  std::snprintf(text, sizeof text, "model-%05zu-of-%05zu.safetensors", index + 1, count);
  return text;
}

// A directory of our own that disappears with everything in it, unless it was given its name.
class unfinished_directory {
 public:
  explicit unfinished_directory(fs::path const& final_path) {
    std::string pattern = final_path.string() + ".part.XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) {
      throw error(error_kind::io, final_path.string() + ": cannot create a directory beside it: " +
                                      std::generic_category().message(errno));
    }
    path_ = pattern;
    std::error_code ignored;  // mkdtemp makes it private; what we write is no secret
    fs::permissions(path_, fs::perms{0755}, ignored);
  }
  ~unfinished_directory() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  unfinished_directory(unfinished_directory const&) = delete;
  unfinished_directory& operator=(unfinished_directory const&) = delete;

  [[nodiscard]] fs::path const& path() const noexcept { return path_; }

  /// Moves it to `target`. What is there goes aside first, comes back if that fails, and is removed
  /// last.
  void become(fs::path const& target, bool replace) {
    fs::path const aside = path_.string() + ".old";
    std::error_code failed;
    if (replace) fs::rename(target, aside, failed);
    if (!failed) fs::rename(path_, target, failed);
    if (failed) {
      std::error_code ignored;
      if (replace && !fs::exists(target, ignored)) fs::rename(aside, target, ignored);
      throw error(error_kind::io,
                  target.string() + ": cannot give the result its name: " + failed.message());
    }
    path_.clear();
    if (replace) fs::remove_all(aside, failed);
  }

 private:
  fs::path path_;
};

bool is_copied(fs::path const& file) {
  std::string const name = file.filename().string();
  if (name == "config.json" || name == "hf_quant_config.json" || name.ends_with(".index.json")) {
    return false;
  }
  std::string const extension = file.extension().string();
  return extension == ".json" || extension == ".jinja" || extension == ".txt";
}

// Only what a checkpoint consists of may be replaced, never a folder of something else.
void require_replaceable(fs::path const& output) {
  auto const refuse = [&](std::string const& why) {
    throw error(error_kind::invalid_argument,
                output.string() + ": it is not replaced, since it " + why +
                    "; a directory with nothing but a checkpoint's files is expected");
  };
  if (fs::is_symlink(output) || !fs::is_directory(output)) refuse("is not a directory");
  bool is_checkpoint = fs::is_empty(output);
  for (fs::directory_entry const& file : fs::directory_iterator(output)) {
    if (!file.is_regular_file()) refuse("holds " + in_quotes(file.path().filename().string()));
    is_checkpoint |= file.path().filename() == "config.json";
  }
  if (!is_checkpoint) refuse("has no config.json");
}

// @return whether something is there that is to be replaced
bool check_output(fs::path const& input, fs::path const& output, bool overwrite) {
  std::error_code ignored;
  if (fs::equivalent(input, output, ignored)) {
    throw error(error_kind::invalid_argument,
                output.string() + ": the output is the input; another directory is expected");
  }
  if (!fs::exists(fs::symlink_status(output, ignored))) return false;
  if (!overwrite) {
    throw error(error_kind::invalid_argument,
                output.string() + ": it exists; a name that does not, or --overwrite, is expected");
  }
  require_replaceable(output);
  return true;
}

// Turns one linear into codes, a piece of rows at a time.
class quantizer {
 public:
  using after_piece = std::function<void(std::uint64_t bytes)>;

  quantizer(planned const& plan, dense_view const& weight, after_piece const& after)
      : plan_(plan),
        weight_(weight),
        after_(after),
        n_(weight.shape[0]),
        k_(weight.shape[1]),
        is_nvfp4_(*plan.cls == quant_class::nvfp4) {
    auto const row_bytes = static_cast<std::uint64_t>(k_) * sizeof(float);
    rows_ = std::clamp<std::int64_t>(static_cast<std::int64_t>(piece_bytes / row_bytes), 1, n_);
    auto const rows = static_cast<std::size_t>(rows_ + 1);
    auto const k = static_cast<std::size_t>(k_);
    values_.resize(rows * k);
    codes_.resize(rows * k / (is_nvfp4_ ? 2 : 1));
    if (is_nvfp4_) block_scales_.resize(rows * k / group_k);
  }

  conversion_error write(safetensors_writer& out) {
    float const amax = find_amax();
    float scale = 0;
    conversion_error result{plan_.module, *plan_.cls, 0, 0};
    double lost = 0;
    double all = 0;
    for (std::int64_t row = 0; row < n_; row += rows_) {
      std::int64_t const count = read(row);
      scale = quantize(count, amax);
      append(out, count);
      add_error(count, scale, lost, all, result.largest);
      release(row, count);
    }
    append_scale(out, scale);
    result.relative_rms = all == 0 ? 0 : std::sqrt(lost / all);
    return result;
  }

 private:
  // Converts `rows_` rows, or what is left, and returns how many.
  std::int64_t read(std::int64_t row) {
    std::int64_t const count = (std::min)(rows_, n_ - row);
    weight_.to_f32(static_cast<std::size_t>(row * k_),
                   std::span(values_).first(static_cast<std::size_t>(count * k_)));
    return count;
  }

  void release(std::int64_t row, std::int64_t count) {
    auto const bytes = static_cast<std::size_t>(count * k_) * sizeof(std::uint16_t);
    release_pages(
        weight_.bytes.subspan(static_cast<std::size_t>(row * k_) * sizeof(std::uint16_t), bytes));
    after_(bytes / 2);  // the weight is read twice
  }

  float find_amax() {
    float amax = 0;
    for (std::int64_t row = 0; row < n_; row += rows_) {
      std::int64_t const count = read(row);
      for (std::int64_t i = 0; i < count * k_; ++i) {
        amax = (std::max)(amax, std::fabs(values_[static_cast<std::size_t>(i)]));
      }
      release(row, count);
    }
    return amax;
  }

  // qpn derives the global scale from the rows it is given. One more row, with the largest weight
  // of the whole matrix, makes that scale the same for every piece; its codes are thrown away.
  float quantize(std::int64_t count, float amax) {
    auto const extra = values_.begin() + count * k_;
    std::fill(extra, extra + k_, 0.0f);
    *extra = amax;
    float scale = 0;
    qpn::status const done =
        is_nvfp4_ ? qpn::quantize_nvfp4(values_.data(), count + 1, k_, codes_.data(),
                                        block_scales_.data(), scale)
                  : qpn::quantize_fp8_tensor(values_.data(), count + 1, k_, codes_.data(), scale);
    if (!done.ok()) {
      throw error(error_kind::internal, "linear " + in_quotes(plan_.module) + ": " + done.what);
    }
    return scale;
  }

  void append(safetensors_writer& out, std::int64_t count) {
    std::int64_t const per_byte = is_nvfp4_ ? 2 : 1;
    auto const bytes = [](std::vector<std::uint8_t> const& all, std::int64_t size) {
      return std::as_bytes(std::span(all).first(static_cast<std::size_t>(size)));
    };
    out.append(plan_.out[0].name, bytes(codes_, count * k_ / per_byte));
    if (is_nvfp4_) out.append(plan_.out[1].name, bytes(block_scales_, count * k_ / group_k));
  }

  void append_scale(safetensors_writer& out, float scale) {
    std::byte bytes[sizeof scale];
    std::memcpy(bytes, &scale, sizeof scale);
    out.append(plan_.out.back().name, bytes);
  }

  void add_error(std::int64_t count, float scale, double& lost, double& all, double& largest) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(count * k_); ++i) {
      double stored = 0;
      if (is_nvfp4_) {
        auto const code = static_cast<std::uint8_t>(codes_[i / 2] >> (i % 2 * 4) & 0xf);
        stored = static_cast<double>(qpn::decode_e2m1(code)) *
                 static_cast<double>(qpn::decode_e4m3(block_scales_[i / group_k]));
      } else {
        stored = static_cast<double>(qpn::decode_e4m3(codes_[i]));
      }
      auto const wanted = static_cast<double>(values_[i]);
      double const difference = wanted - stored * static_cast<double>(scale);
      lost += difference * difference;
      all += wanted * wanted;
      largest = (std::max)(largest, std::fabs(difference));
    }
  }

  planned const& plan_;
  dense_view const& weight_;
  after_piece const& after_;
  std::int64_t n_;
  std::int64_t k_;
  bool is_nvfp4_;
  std::int64_t rows_ = 0;  // of a piece
  std::vector<float> values_;
  std::vector<std::uint8_t> codes_;
  std::vector<std::uint8_t> block_scales_;
};

void copy_tensor(planned const& plan, safetensors_writer& out,
                 quantizer::after_piece const& after) {
  std::span<std::byte const> rest = plan.source->bytes;
  while (!rest.empty()) {
    std::size_t const size = (std::min)(rest.size(), static_cast<std::size_t>(piece_bytes));
    out.append(plan.source->name, rest.first(size));
    release_pages(rest.first(size));
    rest = rest.subspan(size);
    after(size);
  }
}

json quantized_layers(std::vector<planned> const& plan) {
  json layers = json::object();
  for (planned const& one : plan) {
    if (!one.cls) continue;
    layers[one.module] = *one.cls == quant_class::nvfp4
                             ? json{{"quant_algo", "W4A16_NVFP4"}, {"group_size", 16}}
                             : json{{"quant_algo", "FP8"}};
  }
  return layers;
}

// The linears that stay as they are, as the published checkpoints list them.
json excluded_modules(repository const& tensors, model_config const& config) {
  json names = {"model.visual*", "mtp*"};
  for (model_entry const& entry : list_model(config, text_prefix(tensors))) {
    if (entry.group == weight_group::gdn_gates) names.push_back(entry.name);
  }
  return names;
}

json config_groups(std::vector<planned> const& plan) {
  json fp8 = json::array();
  json nvfp4 = json::array();
  for (planned const& one : plan) {
    if (one.cls) (*one.cls == quant_class::nvfp4 ? nvfp4 : fp8).push_back(one.module);
  }
  json const eight = {{"dynamic", false}, {"num_bits", 8}, {"type", "float"}};
  json four = eight;
  four["num_bits"] = 4;
  four["group_size"] = group_k;
  return {{"group_0", {{"weights", eight}, {"targets", fp8}}},
          {"group_1", {{"weights", four}, {"targets", nvfp4}}}};
}

void write_documents(repository const& tensors, model_config const& config,
                     std::vector<planned> const& plan, fs::path const& output) {
  json const layers = quantized_layers(plan);
  json const excluded = excluded_modules(tensors, config);
  json document = read_json_object(tensors.directory() / "config.json");
  document["quantization_config"] = {{"config_groups", config_groups(plan)},
                                     {"ignore", excluded},
                                     {"quant_algo", "MIXED_PRECISION"},
                                     {"quant_method", "modelopt"},
                                     {"quantized_layers", layers}};
  write_json(output / "config.json", document);
  write_json(output / "hf_quant_config.json",
             {{"producer", {{"name", "qwen38_server convert"}, {"version", "1"}}},
              {"quantization",
               {{"quant_algo", "MIXED_PRECISION"},
                {"kv_cache_quant_algo", nullptr},
                {"exclude_modules", excluded},
                {"quantized_layers", layers}}}});
  for (fs::directory_entry const& file : fs::directory_iterator(tensors.directory())) {
    if (!file.is_regular_file() || !is_copied(file.path())) continue;
    std::error_code failed;
    fs::copy_file(file.path(), output / file.path().filename(), failed);
    if (failed) {
      throw error(error_kind::io,
                  file.path().string() + ": cannot copy the file: " + failed.message());
    }
  }
}

void require_dense(std::vector<planned> const& plan, inventory const& weights,
                   fs::path const& input) {
  for (stored_linear const& linear : weights.linears) {
    if (linear.cls == quant_class::bf16 || linear.cls == quant_class::f16 || !linear.cls) continue;
    throw error(error_kind::unsupported, input.string() + ": linear " + in_quotes(linear.module) +
                                             " is stored as " +
                                             std::string(to_string(*linear.cls)) +
                                             ", but linears in BF16 or F16 are expected");
  }
  bool const any =
      std::any_of(plan.begin(), plan.end(), [](planned const& one) { return one.cls.has_value(); });
  if (!any) {
    throw error(error_kind::unsupported,
                input.string() + ": no linear of an MLP, head or mixer is there to convert");
  }
}

// Writes the shards and their index.
class shard_writer {
 public:
  shard_writer(repository& tensors, fs::path const& output, convert_options const& options,
               conversion& result)
      : tensors_(tensors), output_(output), options_(options), result_(result) {}

  void write(std::vector<std::vector<planned const*>> const& shards) {
    json weight_map = json::object();
    for (std::size_t i = 0; i < shards.size(); ++i) {
      std::string const name = shard_name(i, shards.size());
      write_shard(name, shards[i]);
      for (planned const* const one : shards[i]) {
        for (tensor_info const& info : one->out) weight_map[info.name] = name;
      }
    }
    write_json(output_ / index_name,
               {{"metadata", {{"total_size", result_.output_bytes}}}, {"weight_map", weight_map}});
  }

 private:
  void write_shard(std::string const& name, std::vector<planned const*> const& shard) {
    std::vector<tensor_info> infos;
    for (planned const* const one : shard) {
      infos.insert(infos.end(), one->out.begin(), one->out.end());
    }
    safetensors_writer out(output_ / name, infos, {{"format", "pt"}});
    for (planned const* const one : shard) write_tensor(*one, out);
    out.finish();
    std::uint64_t const size = fs::file_size(output_ / name);
    if (size > options_.shard_bytes) {
      throw error(error_kind::internal, name + " has " + std::to_string(size) +
                                            " bytes, more than the limit that it was planned for");
    }
  }

  void write_tensor(planned const& one, safetensors_writer& out) {
    quantizer::after_piece const after = [&](std::uint64_t bytes) {
      done_ += bytes;
      if (options_.on_progress) {
        options_.on_progress({done_, result_.input_bytes, one.source->name});
      }
    };
    result_.tensors += one.out.size();
    result_.output_bytes += one.bytes;
    if (!one.cls) {
      copy_tensor(one, out, after);
      return;
    }
    dense_view const weight = find_dense(tensors_, one.source->name, one.source->shape);
    result_.errors.push_back(quantizer(one, weight, after).write(out));
  }

  repository& tensors_;
  fs::path const& output_;
  convert_options const& options_;
  conversion& result_;
  std::uint64_t done_ = 0;
};

}  // namespace

conversion convert_checkpoint(fs::path const& input, fs::path const& output,
                              convert_options const& options) {
  repository tensors(input);
  model_config const config = load_model_config(input);
  // A trailing slash would make the name empty and the directory beside it one inside it.
  fs::path const target = output.has_filename() ? output : output.parent_path();
  bool const replace = check_output(input, target, options.overwrite);
  diagnostics strict(diagnostics::mode::strict);
  inventory const weights = take_inventory(tensors, config, strict);
  std::vector<planned> const plan = plan_tensors(tensors, config);
  require_dense(plan, weights, input);
  auto const shards = plan_shards(plan, options.shard_bytes);

  conversion result;
  result.shards = shards.size();
  for (planned const& one : plan) result.input_bytes += one.source->byte_count;
  unfinished_directory unfinished(target);
  shard_writer(tensors, unfinished.path(), options, result).write(shards);
  write_documents(tensors, config, plan, unfinished.path());
  unfinished.become(target, replace);
  return result;
}

void print_conversion(std::ostream& out, conversion const& result) {
  struct summary {
    std::size_t count = 0;
    double sum = 0;
    conversion_error const* worst = nullptr;
  };
  std::map<quant_class, summary> classes;
  char line[96];
  out << "relative rms  largest error  class       linear\n";
  for (conversion_error const& one : result.errors) {
    std::snprintf(line, sizeof line, "%12.6f  %13.6g  %-10s  ", one.relative_rms, one.largest,
                  std::string(to_string(one.cls)).c_str());
    out << line << one.module << "\n";
    summary& s = classes[one.cls];
    ++s.count;
    s.sum += one.relative_rms;
    if (s.worst == nullptr || one.relative_rms > s.worst->relative_rms) s.worst = &one;
  }
  for (auto const& [cls, s] : classes) {
    std::snprintf(line, sizeof line, ": %zu linears, relative rms mean %.6f, worst %.6f in ",
                  s.count, s.sum / static_cast<double>(s.count), s.worst->relative_rms);
    out << to_string(cls) << line << s.worst->module << "\n";
  }
  out << result.tensors << " tensors, " << result.input_bytes << " bytes became "
      << result.output_bytes << " in " << result.shards << " shards\n";
}

}  // namespace qwen38::checkpoint
