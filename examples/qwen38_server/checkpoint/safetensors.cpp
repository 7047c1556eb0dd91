// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/safetensors.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>
#include <utility>

#include "checkpoint/message_text.hpp"
#include "support/error.hpp"

namespace qwen38::checkpoint {
namespace {

using nlohmann::json;

// The format's own limit; the real headers have about 0.3 MB.
constexpr std::uint64_t max_header_bytes = 100'000'000;

// One tensor as the header states it; offsets count from the start of the data section.
struct header_entry {
  std::string name;
  storage_dtype dtype = storage_dtype::u8;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  int offsets_read = 0;  // 0 to 2
  bool has_dtype = false;
  bool has_shape = false;
  bool has_offsets = false;
};

// Takes the events of the JSON parser and accepts exactly the form of a safetensors header:
//   { "__metadata__": {string: string}, name: {"dtype": string, "shape": [uint...], "data_offsets":
//   [uint, uint]} }
// An event that the current place does not expect is an error, so nothing nests deeper than three
// levels, and names that stand twice are seen, which a JSON object would hide.
class header_reader final : public nlohmann::json_sax<json> {
 public:
  explicit header_reader(std::string_view label) : label_(label) {}

  std::vector<header_entry> entries;
  std::map<std::string, std::string> metadata;

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_integer(number_integer_t) override { return unexpected("a negative number"); }
  bool number_float(number_float_t, string_t const& text) override {
    return unexpected("the number " + text);
  }
  bool binary(binary_t&) override { return unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == place::shape) {
      if (value > static_cast<std::uint64_t>((std::numeric_limits<std::int64_t>::max)())) {
        fail_tensor("shape has the extent " + std::to_string(value) + ", which overflows");
      }
      entries.back().shape.push_back(static_cast<std::int64_t>(value));
      return true;
    }
    if (place_ == place::offsets) {
      header_entry& entry = entries.back();
      if (entry.offsets_read == 2) fail_tensor("data_offsets has more than two numbers");
      (entry.offsets_read++ == 0 ? entry.begin : entry.end) = value;
      return true;
    }
    return unexpected("the number " + std::to_string(value));
  }

  bool string(string_t& value) override {
    if (place_ == place::metadata_value) {
      metadata.emplace(key_, value);
      place_ = place::metadata;
      return true;
    }
    if (place_ == place::dtype_value) {
      std::optional<storage_dtype> const dtype = dtype_from_name(value);
      if (!dtype) fail_tensor("unknown dtype " + in_quotes(value), error_kind::unsupported);
      entries.back().dtype = *dtype;
      place_ = place::tensor;
      return true;
    }
    return unexpected("the string " + in_quotes(value));
  }

  bool start_object(std::size_t) override {
    switch (place_) {
      case place::start: place_ = place::top; return true;
      case place::metadata_open: place_ = place::metadata; return true;
      case place::tensor_open: place_ = place::tensor; return true;
      default: return unexpected("an object");
    }
  }

  bool key(string_t& value) override {
    switch (place_) {
      case place::top: start_entry(value); return true;
      case place::metadata:
        key_ = value;
        if (metadata.contains(key_)) fail("__metadata__ has the key " + in_quotes(key_) + " twice");
        place_ = place::metadata_value;
        return true;
      case place::tensor: start_field(value); return true;
      default: return unexpected("the key " + in_quotes(value));
    }
  }

  bool end_object() override {
    switch (place_) {
      case place::top: place_ = place::done; return true;
      case place::metadata: place_ = place::top; return true;
      case place::tensor: end_entry(); return true;
      default: return unexpected("the end of an object");
    }
  }

  bool start_array(std::size_t) override {
    switch (place_) {
      case place::shape_open: place_ = place::shape; return true;
      case place::offsets_open: place_ = place::offsets; return true;
      default: return unexpected("an array");
    }
  }

  bool end_array() override {
    if (place_ != place::shape && place_ != place::offsets)
      return unexpected("the end of an array");
    place_ = place::tensor;
    return true;
  }

  bool parse_error(std::size_t position, std::string const&,
                   nlohmann::detail::exception const&) override {
    fail("the header is not valid JSON at its byte " + std::to_string(position));
  }

 private:
  enum class place {
    start,
    top,
    metadata_open,
    metadata,
    metadata_value,
    tensor_open,
    tensor,
    dtype_value,
    shape_open,
    shape,
    offsets_open,
    offsets,
    done,
  };

  [[noreturn]] void fail(std::string const& what,
                         error_kind kind = error_kind::corrupt_data) const {
    throw error(kind, std::string(label_) + ": " + what);
  }
  [[noreturn]] void fail_tensor(std::string const& what,
                                error_kind kind = error_kind::corrupt_data) const {
    fail("tensor " + in_quotes(entries.back().name) + ": " + what, kind);
  }

  bool unexpected(std::string const& got) const {
    switch (place_) {
      case place::start: fail("the header is " + got + " where an object was expected");
      case place::top: fail("the header has " + got + " where a tensor name was expected");
      case place::metadata_open:
      case place::metadata:
      case place::metadata_value: fail("__metadata__ has " + got + " where text was expected");
      case place::tensor_open: fail_tensor("its entry is " + got + " where an object was expected");
      case place::tensor: fail_tensor("its entry has " + got + " where a field was expected");
      case place::dtype_value: fail_tensor("dtype is " + got + " where a string was expected");
      case place::shape_open:
      case place::shape: fail_tensor("shape has " + got + " where a whole number was expected");
      case place::offsets_open:
      case place::offsets:
        fail_tensor("data_offsets has " + got + " where a whole number was expected");
      case place::done: break;
    }
    fail("the header goes on with " + got + " after its end");
  }

  void start_entry(std::string const& name) {
    if (!names_.insert(name).second) fail("the header has the name " + in_quotes(name) + " twice");
    if (name == "__metadata__") {
      place_ = place::metadata_open;
      return;
    }
    if (name.empty()) fail("the header has a tensor with an empty name");
    entries.emplace_back().name = name;
    place_ = place::tensor_open;
  }

  void start_field(std::string const& field) {
    header_entry& entry = entries.back();
    bool repeated = false;
    if (field == "dtype") {
      repeated = std::exchange(entry.has_dtype, true);
      place_ = place::dtype_value;
    } else if (field == "shape") {
      repeated = std::exchange(entry.has_shape, true);
      place_ = place::shape_open;
    } else if (field == "data_offsets") {
      repeated = std::exchange(entry.has_offsets, true);
      place_ = place::offsets_open;
    } else {
      fail_tensor("unknown field " + in_quotes(field));
    }
    if (repeated) fail_tensor("its entry has the field " + field + " twice");
  }

  void end_entry() {
    header_entry const& entry = entries.back();
    if (!entry.has_dtype) fail_tensor("dtype is missing");
    if (!entry.has_shape) fail_tensor("shape is missing");
    if (!entry.has_offsets) fail_tensor("data_offsets is missing");
    if (entry.offsets_read != 2) fail_tensor("data_offsets has fewer than two numbers");
    place_ = place::top;
  }

  std::string_view label_;
  place place_ = place::start;
  std::string key_;
  std::unordered_set<std::string> names_;
};

// Bytes of a tensor, or nothing if the product overflows 64 bits.
std::optional<std::uint64_t> size_of(storage_dtype dtype, std::span<std::int64_t const> shape) {
  auto product = static_cast<std::uint64_t>(dtype_bytes(dtype));
  for (std::int64_t const extent : shape) {
    if (__builtin_mul_overflow(product, static_cast<std::uint64_t>(extent), &product)) return {};
  }
  return product;
}

// Checks one entry on its own and gives its bytes; `data_bytes` is empty if the data section is
// absent.
std::uint64_t check_entry(header_entry const& entry, std::optional<std::uint64_t> data_bytes,
                          std::string const& label) {
  auto const fail = [&](std::string const& what) {
    throw error(error_kind::corrupt_data,
                label + ": tensor " + in_quotes(entry.name) + ": " + what);
  };
  std::string const offsets =
      "data_offsets [" + std::to_string(entry.begin) + ", " + std::to_string(entry.end) + "]";
  std::string const form = describe(entry.dtype, entry.shape);
  std::optional<std::uint64_t> const bytes = size_of(entry.dtype, entry.shape);
  if (!bytes) fail("the size of " + form + " overflows");
  if (entry.begin > entry.end) fail(offsets + " run backwards");
  if (data_bytes && entry.end > *data_bytes) {
    fail(offsets + " end past the file's data section of " + std::to_string(*data_bytes) +
         " bytes (is the file cut off?)");
  }
  if (entry.end - entry.begin != *bytes) {
    fail(offsets + " hold " + std::to_string(entry.end - entry.begin) + " bytes, but " + form +
         " needs " + std::to_string(*bytes));
  }
  return *bytes;
}

// The entries, sorted by offset, must follow each other without overlap or hole from byte 0 on.
std::uint64_t check_tiling(std::span<header_entry const> sorted, std::string const& label) {
  std::uint64_t expected = 0;
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    std::uint64_t const begin = sorted[i].begin;
    if (begin < expected) {
      throw error(error_kind::corrupt_data, label + ": tensors " + in_quotes(sorted[i - 1].name) +
                                                " and " + in_quotes(sorted[i].name) + " overlap");
    }
    if (begin > expected) {
      throw error(error_kind::corrupt_data, label + ": " + std::to_string(begin - expected) +
                                                " bytes before tensor " +
                                                in_quotes(sorted[i].name) + " belong to no tensor");
    }
    expected = sorted[i].end;
  }
  return expected;
}

std::uint64_t read_header_length(std::span<std::byte const> file, std::string const& label) {
  if (file.size() < 8) {
    throw error(error_kind::corrupt_data, label + ": the file has " + std::to_string(file.size()) +
                                              " bytes, too few for a safetensors header length");
  }
  std::uint64_t length = 0;
  for (unsigned i = 0; i < 8; ++i) length |= std::to_integer<std::uint64_t>(file[i]) << (8 * i);
  if (length > max_header_bytes) {
    throw error(error_kind::corrupt_data,
                label + ": the header length of " + std::to_string(length) +
                    " bytes is over the format's limit of 100 MB (is this a safetensors file?)");
  }
  if (length > file.size() - 8) {
    throw error(error_kind::corrupt_data, label + ": the header length of " +
                                              std::to_string(length) +
                                              " bytes goes past the end of the file");
  }
  return length;
}

}  // namespace

std::string describe(storage_dtype dtype, std::span<std::int64_t const> shape) {
  std::string text(dtype_name(dtype));
  text += " [";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i != 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

std::string describe(tensor_view const& tensor) {
  return describe(tensor.dtype, tensor.shape);
}

safetensors_contents parse_safetensors(std::span<std::byte const> file, std::string_view label,
                                       open_mode mode) {
  std::string const where(label);
  std::uint64_t const header_bytes = read_header_length(file, where);
  auto const* const text = reinterpret_cast<char const*>(file.data() + 8);
  // The JSON library would skip a byte order mark or blanks; the format allows neither.
  if (header_bytes == 0 || text[0] != '{') {
    throw error(error_kind::corrupt_data, where + ": the header does not begin with '{'");
  }
  // To the JSON library a zero byte is the end of its input, whatever comes after.
  std::size_t const zero = std::string_view(text, header_bytes).find('\0');
  if (zero != std::string_view::npos) {
    throw error(error_kind::corrupt_data,
                where + ": the header is not valid JSON at its byte " + std::to_string(zero + 1));
  }
  header_reader reader(label);
  json::sax_parse(text, text + header_bytes, &reader);

  std::vector<header_entry>& entries = reader.entries;
  std::sort(entries.begin(), entries.end(), [](header_entry const& a, header_entry const& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  std::span<std::byte const> const data = file.subspan(8 + header_bytes);
  std::optional<std::uint64_t> available;
  if (mode == open_mode::full) available = data.size();

  safetensors_contents contents;
  contents.metadata = std::move(reader.metadata);
  contents.header_bytes = header_bytes;
  contents.tensors.resize(entries.size());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    contents.tensors[i].byte_count = check_entry(entries[i], available, where);
  }
  contents.data_bytes = check_tiling(entries, where);
  if (available && contents.data_bytes != *available) {
    throw error(error_kind::corrupt_data, where + ": " +
                                              std::to_string(*available - contents.data_bytes) +
                                              " bytes after the last tensor belong to no tensor");
  }
  for (std::size_t i = 0; i < entries.size(); ++i) {
    tensor_view& view = contents.tensors[i];
    view.name = std::move(entries[i].name);
    view.dtype = entries[i].dtype;
    view.shape = std::move(entries[i].shape);
    if (available) view.bytes = data.subspan(entries[i].begin, view.byte_count);
  }
  return contents;
}

}  // namespace qwen38::checkpoint
