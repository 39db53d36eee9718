// SPDX-License-Identifier: Apache-2.0
#include "safetensors_header.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "failure.hpp"

namespace trimul::cli {
namespace {

struct DTypeName {
  std::string_view name;
  trimul_dtype dtype;
  std::uint64_t bytes;
};
constexpr std::array kDTypes{
    DTypeName{"F64", TRIMUL_F64, 8},   DTypeName{"F32", TRIMUL_F32, 4}, DTypeName{"F16", TRIMUL_F16, 2}, DTypeName{"BF16", TRIMUL_BF16, 2},
    DTypeName{"BOOL", TRIMUL_BOOL, 1}, DTypeName{"U8", TRIMUL_U8, 1},   DTypeName{"I8", TRIMUL_I8, 1},   DTypeName{"I16", TRIMUL_I16, 2},
    DTypeName{"I32", TRIMUL_I32, 4},   DTypeName{"I64", TRIMUL_I64, 8},
};

const DTypeName& find_dtype(const std::string& tensor, std::string_view name) {
  for (const DTypeName& entry : kDTypes)
    if (entry.name == name) return entry;
  fail_invalid("tensor {}: dtype is {}, expected F64, F32, F16, BF16, BOOL, U8, I8, I16, I32 or I64", in_quotes(tensor), in_quotes(name));
}

std::uint64_t element_bytes(trimul_dtype dtype) {
  for (const DTypeName& entry : kDTypes)
    if (entry.dtype == dtype) return entry.bytes;
  return 0;
}

/// Receives the parser's events one by one, so that duplicate keys and nesting are seen, which a parsed document has lost. The
/// parser keeps no recursion, and any nesting beyond the format's is refused at its first bracket.
class HeaderReader {
 public:
  [[nodiscard]] std::vector<TensorEntry> take() { return std::move(entries_); }

  bool null() { unexpected("null"); }
  bool boolean(bool) { unexpected("true or false"); }
  bool number_integer(std::int64_t value) { unexpected(fmt::format("the negative number {}", value)); }
  bool number_float(double, const std::string& text) { unexpected("the number " + in_quotes(text)); }
  bool binary(nlohmann::json::binary_t&) { unexpected("binary data"); }

  bool number_unsigned(std::uint64_t value) {
    if (place_ == Place::kShape) {
      if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
        fail_invalid("tensor {}: a size is {}, expected below 2^63", in_quotes(entry().name), value);
      if (entry().shape.size() == TRIMUL_MAX_NDIM)
        fail_invalid("tensor {}: has more than {} dimensions", in_quotes(entry().name), static_cast<int>(TRIMUL_MAX_NDIM));
      entry().shape.push_back(static_cast<std::int64_t>(value));
    } else if (place_ == Place::kOffsets && num_offsets_ < 2) {
      (num_offsets_++ == 0 ? entry().begin : entry().end) = value;
    } else {
      unexpected(fmt::format("the number {}", value));
    }
    return true;
  }

  bool string(std::string& value) {
    if (place_ == Place::kMetadata) return true;
    if (place_ != Place::kEntry || key_ != "dtype") unexpected("the string " + in_quotes(value));
    entry().dtype = find_dtype(entry().name, value).dtype;
    return true;
  }

  bool start_object(std::size_t) {
    if (place_ == Place::kOutside) {
      place_ = Place::kRoot;
    } else if (place_ == Place::kRoot && key_ == "__metadata__") {
      place_ = Place::kMetadata;
      fields_.clear();
    } else if (place_ == Place::kRoot) {
      place_ = Place::kEntry;
      entries_.push_back({.name = key_, .dtype = TRIMUL_F32, .shape = {}, .begin = 0, .end = 0});
      fields_.clear();
    } else {
      unexpected("an object");
    }
    return true;
  }

  bool key(std::string& name) {
    std::set<std::string>& seen = place_ == Place::kRoot ? names_ : fields_;
    if (place_ == Place::kEntry && name != "dtype" && name != "shape" && name != "data_offsets")
      fail_invalid("tensor {}: has the field {}, expected dtype, shape and data_offsets", in_quotes(entry().name), in_quotes(name));
    if (!seen.insert(name).second) {
      if (place_ == Place::kEntry) fail_invalid("tensor {}: the field {} stands twice", in_quotes(entry().name), in_quotes(name));
      fail_invalid("header: the name {} stands twice", in_quotes(name));
    }
    key_ = name;
    return true;
  }

  bool end_object() {
    if (place_ == Place::kEntry) {
      for (const char* field : {"dtype", "shape", "data_offsets"})
        if (!fields_.contains(field)) fail_invalid("tensor {}: the field '{}' is missing", in_quotes(entry().name), field);
      place_ = Place::kRoot;
    } else {
      place_ = place_ == Place::kMetadata ? Place::kRoot : Place::kOutside;
    }
    return true;
  }

  bool start_array(std::size_t) {
    if (place_ != Place::kEntry || key_ == "dtype") unexpected("an array");
    place_ = key_ == "shape" ? Place::kShape : Place::kOffsets;
    num_offsets_ = 0;
    return true;
  }

  bool end_array() {
    if (place_ == Place::kOffsets && num_offsets_ != 2)
      fail_invalid("tensor {}: data_offsets has {} numbers, expected 2", in_quotes(entry().name), num_offsets_);
    place_ = Place::kEntry;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception& error) {
    // Its text quotes the input and may be long; the position and the kind are what helps.
    const std::string_view text(error.what());
    const bool utf8 = text.find("UTF-8") != std::string_view::npos;
    fail_invalid("header: not valid JSON at byte {}{}", position, utf8 ? ": ill-formed UTF-8" : "");
  }

 private:
  enum class Place { kOutside, kRoot, kMetadata, kEntry, kShape, kOffsets };

  TensorEntry& entry() { return entries_.back(); }

  [[noreturn]] void unexpected(const std::string& what) const {
    switch (place_) {
      case Place::kOutside: fail_invalid("header: is {}, expected an object", what);
      case Place::kRoot: fail_invalid("tensor {}: is {}, expected an object", in_quotes(key_), what);
      case Place::kMetadata: fail_invalid("header: __metadata__ holds {}, expected strings", what);
      case Place::kEntry: fail_invalid("tensor {}: the field '{}' is {}", in_quotes(entries_.back().name), key_, what);
      case Place::kShape: fail_invalid("tensor {}: shape holds {}, expected sizes of at least 0", in_quotes(entries_.back().name), what);
      case Place::kOffsets: fail_invalid("tensor {}: data_offsets holds {}, expected 2 offsets", in_quotes(entries_.back().name), what);
    }
    fail(kOther, "header: unknown place");
  }

  Place place_ = Place::kOutside;
  std::string key_;               // the last one seen at this level
  std::set<std::string> names_;   // of the root
  std::set<std::string> fields_;  // of the entry or the metadata
  int num_offsets_ = 0;
  std::vector<TensorEntry> entries_;
};

/// Bytes that the shape needs. Sizes of zero do not hide an overflow of the others.
std::uint64_t bytes_of_shape(const TensorEntry& entry) {
  auto bytes = static_cast<std::int64_t>(element_bytes(entry.dtype));
  bool is_empty = false;
  for (const std::int64_t size : entry.shape) {
    is_empty = is_empty || size == 0;
    if (size != 0 && __builtin_mul_overflow(bytes, size, &bytes))
      fail_invalid("tensor {}: the product of its sizes does not fit into 63 bits of bytes", in_quotes(entry.name));
  }
  return is_empty ? 0 : static_cast<std::uint64_t>(bytes);
}

void check_entry(const TensorEntry& entry, std::uint64_t data_bytes) {
  if (entry.begin > entry.end)
    fail_invalid("tensor {}: data_offsets are reversed: got [{}, {}]", in_quotes(entry.name), entry.begin, entry.end);
  if (entry.end > data_bytes)
    fail_invalid("tensor {}: data_offsets end at {}, beyond the {} bytes of data", in_quotes(entry.name), entry.end, data_bytes);
  const std::uint64_t expected = bytes_of_shape(entry);
  if (entry.end - entry.begin != expected)
    fail_invalid("tensor {}: data_offsets span {} bytes, expected {} from dtype and shape", in_quotes(entry.name), entry.end - entry.begin,
                 expected);
}

/// Sorted by offset, each tensor must begin where the one before it ends.
void check_coverage(const std::vector<TensorEntry>& entries, std::uint64_t data_bytes) {
  std::vector<const TensorEntry*> order;
  for (const TensorEntry& entry : entries) order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](const TensorEntry* left, const TensorEntry* right) {
    return left->begin != right->begin ? left->begin < right->begin : left->end < right->end;
  });
  std::uint64_t covered = 0;
  for (const TensorEntry* entry : order) {
    if (entry->begin != covered)
      fail_invalid("tensor {}: begins at byte {} of the data, expected {}: tensors {}", in_quotes(entry->name), entry->begin, covered,
                   entry->begin < covered ? "overlap" : "leave a hole");
    covered = entry->end;
  }
  if (covered != data_bytes) fail_invalid("header: its tensors cover {} bytes of data, the file holds {}", covered, data_bytes);
}

}  // namespace

std::uint64_t check_header_length(std::uint64_t header_bytes, std::uint64_t file_bytes) {
  if (file_bytes < kLengthBytes) fail_invalid("file: is {} bytes long, expected at least {}", file_bytes, kLengthBytes);
  if (header_bytes < 2) fail_invalid("header: length is {}, expected at least 2", header_bytes);
  if (header_bytes > file_bytes - kLengthBytes) fail_invalid("header: length is {}, beyond the file's {} bytes", header_bytes, file_bytes);
  if (header_bytes > kMostHeaderBytes) fail_invalid("header: length is {}, expected at most {}", header_bytes, kMostHeaderBytes);
  return header_bytes;
}

std::vector<TensorEntry> parse_header(std::string_view json, std::uint64_t data_bytes) {
  // The parser would skip a byte-order mark in front and take a zero byte for the end.
  if (!json.starts_with('{')) fail_invalid("header: does not begin with '{{'");
  if (const std::size_t zero = json.find('\0'); zero != std::string_view::npos)
    fail_invalid("header: not valid JSON at byte {}: a zero byte", zero);
  HeaderReader reader;
  nlohmann::json::sax_parse(json.begin(), json.end(), &reader);
  std::vector<TensorEntry> entries = reader.take();
  for (const TensorEntry& entry : entries) check_entry(entry, data_bytes);
  check_coverage(entries, data_bytes);
  return entries;
}

std::string format_header(const std::vector<TensorEntry>& entries) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  for (const TensorEntry& entry : entries)
    header[entry.name] = {
        {"dtype", safetensors_dtype_name(entry.dtype)}, {"shape", entry.shape}, {"data_offsets", {entry.begin, entry.end}}};
  std::string text = header.dump();
  text.resize((text.size() + kLengthBytes - 1) / kLengthBytes * kLengthBytes, ' ');
  return text;
}

std::string_view safetensors_dtype_name(trimul_dtype dtype) {
  for (const DTypeName& entry : kDTypes)
    if (entry.dtype == dtype) return entry.name;
  return "unknown";
}

}  // namespace trimul::cli
