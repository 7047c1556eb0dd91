// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cctype>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace qwen38::test {

/// A page of Prometheus' text exposition format 0.0.4, read by the rules of that format.
struct prometheus_page {
  std::map<std::string, std::string> types;  ///< by family
  /// By name and labels as they stand, e.g. `a_total{b="c"}`.
  std::map<std::string, double> samples;
  std::string problem;  ///< the first rule that is broken, with its line; "" if none is

  [[nodiscard]] double at(std::string const& series) const {
    auto const found = samples.find(series);
    return found == samples.end() ? std::nan("") : found->second;
  }
};

/// Reads and checks a page: the grammar of names, labels and values; HELP and TYPE before the
/// family's samples, once, and all samples of a family together; no series twice; counters end in
/// _total and are not negative; a histogram has cumulative buckets in ascending order, +Inf last
/// and equal to _count, and a _sum.
class prometheus_reader {
 public:
  [[nodiscard]] static prometheus_page read(std::string_view text) {
    prometheus_reader reader;
    if (text.empty() || text.back() != '\n') {
      reader.page_.problem = "the page does not end with a newline";
    }
    while (!text.empty() && reader.page_.problem.empty()) {
      auto const end = text.find('\n');
      reader.line_ = text.substr(0, end);
      text.remove_prefix(end + 1);
      reader.read_line();
    }
    if (reader.page_.problem.empty()) reader.end_family();
    return std::move(reader.page_);
  }

 private:
  struct bucket {
    double bound;
    double count;
  };

  void expect(bool holds, std::string const& rule) {
    if (!holds && page_.problem.empty()) page_.problem = rule + ": " + std::string(line_);
  }

  static bool is_name(std::string_view name, bool colons) {
    if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0]))) return false;
    for (char const c : name) {
      bool const plain = std::isalnum(static_cast<unsigned char>(c)) || c == '_';
      if (!plain && !(colons && c == ':')) return false;
    }
    return true;
  }

  void read_line() {
    if (line_.empty()) return;
    if (line_.starts_with("# HELP ")) return read_help();
    if (line_.starts_with("# TYPE ")) return read_type();
    if (line_.front() == '#') return;
    read_sample();
  }

  void read_help() {
    auto const rest = line_.substr(7);
    std::string const name(rest.substr(0, rest.find(' ')));
    expect(is_name(name, true), "a HELP line without a name");
    expect(helped_.insert(name).second, "a second HELP line");
    expect(rest.size() > name.size() + 1, "a HELP line without a text");
  }

  void read_type() {
    end_family();
    auto const rest = line_.substr(7);
    auto const space = rest.find(' ');
    family_ = rest.substr(0, space);
    type_ = space == std::string_view::npos ? "" : rest.substr(space + 1);
    expect(is_name(family_, true), "a TYPE line without a name");
    expect(type_ == "counter" || type_ == "gauge" || type_ == "histogram", "an unknown type");
    expect(type_ != "counter" || family_.ends_with("_total"), "a counter without _total");
    expect(helped_.count(family_) == 1, "a TYPE line without its HELP line before it");
    expect(page_.types.emplace(family_, type_).second, "a family that is not together");
  }

  void read_sample() {
    auto const brace = line_.find('{');
    auto const name_end = std::min(brace, line_.find(' '));
    expect(name_end != std::string_view::npos, "a sample without a value");
    if (!page_.problem.empty()) return;
    std::string const name(line_.substr(0, name_end));
    expect(is_name(name, true), "a sample's name");
    auto rest = line_.substr(name_end);
    std::map<std::string, std::string> labels;
    if (rest.front() == '{') read_labels(rest, labels);
    if (!page_.problem.empty()) return;
    expect(rest.size() > 1 && rest.front() == ' ', "no space before the value");
    std::string const number(rest.substr(1));
    char* end = nullptr;
    double const value = std::strtod(number.c_str(), &end);
    expect(end == number.c_str() + number.size() && number.front() != ' ', "a value");
    std::string const series(line_.substr(0, line_.size() - rest.size()));
    expect(page_.samples.emplace(series, value).second, "a series twice");
    check_family(name, labels, value);
  }

  void read_labels(std::string_view& rest, std::map<std::string, std::string>& labels) {
    rest.remove_prefix(1);
    while (!rest.empty() && rest.front() != '}') {
      auto const equals = rest.find("=\"");
      expect(equals != std::string_view::npos, "a label");
      if (!page_.problem.empty()) return;
      std::string const label(rest.substr(0, equals));
      expect(is_name(label, false), "a label's name");
      rest.remove_prefix(equals + 2);
      std::string value;
      while (!rest.empty() && rest.front() != '"') {
        if (rest.front() == '\\') {
          rest.remove_prefix(1);
          expect(!rest.empty() && std::string_view("\\\"n").find(rest.front()) != rest.npos,
                 "an escape in a label");
          if (rest.empty()) return;
        }
        value += rest.front();
        rest.remove_prefix(1);
      }
      expect(!rest.empty(), "an open label");
      if (rest.empty()) return;
      rest.remove_prefix(1);
      expect(labels.emplace(label, value).second, "a label twice");
      if (!rest.empty() && rest.front() == ',') rest.remove_prefix(1);
    }
    expect(!rest.empty(), "open labels");
    if (!rest.empty()) rest.remove_prefix(1);
  }

  void check_family(std::string const& name, std::map<std::string, std::string> const& labels,
                    double value) {
    if (type_ != "histogram") {
      expect(name == family_, "a sample outside its family");
      expect(type_ != "counter" || value >= 0, "a negative counter");
      return;
    }
    expect(!has_count_, "a sample after _count");
    if (name == family_ + "_bucket") {
      auto const bound = labels.find("le");
      expect(labels.size() == 1 && bound != labels.end(), "a bucket without le");
      if (!page_.problem.empty()) return;
      double const upper =
          bound->second == "+Inf" ? HUGE_VAL : std::strtod(bound->second.c_str(), nullptr);
      expect(buckets_.empty() || upper > buckets_.back().bound, "buckets that do not ascend");
      expect(buckets_.empty() || value >= buckets_.back().count, "buckets that are not cumulative");
      buckets_.push_back({upper, value});
    } else if (name == family_ + "_sum") {
      has_sum_ = true;
    } else {
      expect(name == family_ + "_count", "a sample outside its family");
      has_count_ = true;
      expect(!buckets_.empty() && std::isinf(buckets_.back().bound), "no bucket le=\"+Inf\"");
      expect(!buckets_.empty() && buckets_.back().count == value, "_count is not +Inf's bucket");
    }
  }

  void end_family() {
    expect(type_ != "histogram" || (has_sum_ && has_count_), "a histogram without _sum or _count");
    buckets_.clear();
    has_sum_ = has_count_ = false;
  }

  prometheus_page page_;
  std::string_view line_;
  std::set<std::string> helped_;
  std::string family_;
  std::string type_;
  std::vector<bucket> buckets_;
  bool has_sum_ = false;
  bool has_count_ = false;
};

}  // namespace qwen38::test
