// Writes rows of results to a table and to JSON. A row is a JSON object; docs/bench.md lists its keys.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "rueda/base/status.h"
#include "rueda/base/unique_fd.h"

namespace rueda::bench {

using Row = nlohmann::ordered_json;

std::string us_text(double us);  // "1.23 us", "45.6 ms", "1.20 s": three digits
std::string table_header(std::string_view what);
std::string table_line(std::string_view what, const Row& row);

// On rank 0 it prints each line at once and appends rows to the launcher's file. On other ranks
// it does nothing.
class Report {
 public:
  Report(std::string what, std::string rows_path, bool is_mute)
      : what_(std::move(what)), rows_path_(std::move(rows_path)), is_mute_(is_mute) {}
  Status add(Row row);
  [[nodiscard]] const std::vector<Row>& rows() const { return rows_; }

 private:
  std::string what_, rows_path_;
  bool is_mute_;
  std::vector<Row> rows_;
};

// The launcher's end of what rank 0 appends: a file, or a named pipe where files may not be large enough.
class AppendedRows {
 public:
  static Result<AppendedRows> make(std::string path);
  // Once rank 0 has ended.
  [[nodiscard]] Result<std::vector<Row>> read() const;

 private:
  explicit AppendedRows(std::string path) : path_(std::move(path)) {}
  std::string path_;
  UniqueFd pipe_;  // both ends, so that rank 0 never waits for a reader
};
Row describe_machine();
// Checks this before a measurement that may take an hour, and leaves no file behind. option: it named the
// path.
Status check_writable(const std::string& path, std::string_view option);
// {"command", "machine", "results"}.
Status write_json(const std::string& path, const std::vector<std::string>& arguments,
                  const std::vector<Row>& rows);
// Whether every row's "correct" is true.
bool are_all_correct(const std::vector<Row>& rows);

}  // namespace rueda::bench
