#include "fuse/control/json_writer.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace elidefs::fuse {
namespace {

// The length of the UTF-8 sequence at the start of `text`, 0 if it is not a valid one (RFC 3629).
size_t SequenceLength(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  size_t length = 0;
  if (byte(0) < 0x80) return 1;
  if (byte(0) >= 0xC2 && byte(0) <= 0xDF) length = 2;
  if (byte(0) >= 0xE0 && byte(0) <= 0xEF) length = 3;
  if (byte(0) >= 0xF0 && byte(0) <= 0xF4) length = 4;
  if (length == 0 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0U) != 0x80) return 0;
  }
  // Overlong forms, surrogates and values above U+10FFFF.
  if ((byte(0) == 0xE0 && byte(1) < 0xA0) || (byte(0) == 0xED && byte(1) > 0x9F)) return 0;
  if ((byte(0) == 0xF0 && byte(1) < 0x90) || (byte(0) == 0xF4 && byte(1) > 0x8F)) return 0;
  return length;
}

}  // namespace

void JsonWriter::AppendQuoted(std::string_view value) {
  text_ += '"';
  while (!value.empty()) {
    const size_t length = SequenceLength(value);
    const char letter = value[0];
    if (length == 0) {
      text_ += "\\ufffd";
    } else if (letter == '"' || letter == '\\') {
      text_ += '\\';
      text_ += letter;
    } else if (length == 1 && static_cast<unsigned char>(letter) < 0x20) {
      absl::StrAppendFormat(&text_, "\\u%04x", static_cast<unsigned>(letter));
    } else {
      text_.append(value.data(), length);
    }
    value.remove_prefix(length == 0 ? 1 : length);
  }
  text_ += '"';
}

void JsonWriter::StartValue(std::string_view key) {
  if (levels_.empty()) return;
  text_ += levels_.back().empty ? "\n" : ",\n";
  levels_.back().empty = false;
  text_.append(levels_.size() * 2, ' ');
  if (key.empty()) return;
  AppendQuoted(key);
  text_ += ": ";
}

void JsonWriter::Open(std::string_view key, char opening) {
  StartValue(key);
  text_ += opening;
  levels_.push_back({opening == '{' ? '}' : ']', true});
}

void JsonWriter::End() {
  const Level level = levels_.back();
  levels_.pop_back();
  if (!level.empty) {
    text_ += '\n';
    text_.append(levels_.size() * 2, ' ');
  }
  text_ += level.closing;
  if (levels_.empty()) text_ += '\n';
}

void JsonWriter::Number(std::string_view key, uint64_t value) {
  StartValue(key);
  absl::StrAppend(&text_, value);
}

void JsonWriter::Boolean(std::string_view key, bool value) {
  StartValue(key);
  text_ += value ? "true" : "false";
}

void JsonWriter::String(std::string_view key, std::string_view value) {
  StartValue(key);
  AppendQuoted(value);
}

}  // namespace elidefs::fuse
