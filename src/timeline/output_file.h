// A file that a command writes. It appears under its name when it is whole; until then, what had that
// name stays.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include "rueda/base/status.h"

namespace rueda::timeline {

class OutputFile {
 public:
  OutputFile() = default;
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  // Refuses the name of a record file, or of a timeline with its records: that of an output may have been
  // forgotten.
  Status open(const std::string& path);
  Status write(std::string_view bytes);
  Status close();

 private:
  [[nodiscard]] Status failure() const;
  std::FILE* file_ = nullptr;
  std::string path_, draft_;  // draft_: what is written; path_ itself where it is no regular file
};

// Whether such a file can be begun, before what may take long. Leaves what is there alone.
Status check_output(const std::string& path);

// All of a file.
Status write_file(const std::string& path, std::string_view text);

}  // namespace rueda::timeline
