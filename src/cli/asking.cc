#include "cli/asking.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>

#include "cli/number_checks.h"
#include "observe/table.h"
#include "rueda/status/job_answer.h"

namespace rueda::cli {

void add_timeout(CLI::App& app, double& timeout_s) {
  app.add_option("--timeout", timeout_s, "seconds to wait for processes and other hosts")
      ->check(number_from(0.1, status::kLongestQuestion_ms / 1e3));
}

int milliseconds(double seconds) { return static_cast<int>(std::lround(seconds * 1e3)); }

void tell(const char* command, const std::vector<std::string>& remarks) {
  for (const std::string& remark : remarks) fmt::print(stderr, "rueda {}: {}\n", command, remark);
}

std::vector<std::string> remarks_of(const observe::Found& found) {
  std::vector<std::string> remarks = found.remarks;
  for (const observe::Absent& absent : found.absent) remarks.push_back(observe::absent_text(absent));
  return remarks;
}

}  // namespace rueda::cli
