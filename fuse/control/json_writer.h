// A minimal JSON writer (RFC 8259): objects, arrays, strings, unsigned numbers and booleans, indented by two blanks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace elidefs::fuse {

// Not thread-safe. The caller balances Begin and End calls; an empty key is right inside arrays and for the root.
class JsonWriter {
 public:
  void BeginObject(std::string_view key = "") { Open(key, '{'); }
  void BeginArray(std::string_view key) { Open(key, '['); }
  void End();
  void Number(std::string_view key, uint64_t value);
  void Boolean(std::string_view key, bool value);
  // Bytes that are not valid UTF-8 (paths may hold any) become U+FFFD.
  void String(std::string_view key, std::string_view value);
  // The text so far; with everything ended, a document and a newline.
  const std::string& text() const { return text_; }

 private:
  struct Level {
    char closing;
    bool empty;
  };
  void Open(std::string_view key, char opening);
  void StartValue(std::string_view key);
  void AppendQuoted(std::string_view value);

  std::string text_;
  std::vector<Level> levels_;
};

}  // namespace elidefs::fuse
