// What the ranks of `rueda.run` return, gathered in a directory that its Python side reads.
#pragma once

#include <span>
#include <string>

#include "launch/ending.h"
#include "rueda/base/status.h"

namespace rueda::launch {

class ResultFiles {
 public:
  // dir: exists already; "" = nothing is gathered, and every call does nothing.
  explicit ResultFiles(std::string dir) : dir_(std::move(dir)) {}

  Status append(Rank rank, std::span<const std::byte> bytes) const;  // to result.<rank>
  void write_failure(const Ending& cause) const;                     // "<rank> <exit status>"
  void write_verdict(const std::string& why) const;                  // the sentence that ended the job
  // Nobody is left to read the results. Removes the directory if rueda.run has made it: its name says so.
  void remove() const;
  // Forgets what an earlier try has left.
  void clear() const;

 private:
  std::string dir_;
};

}  // namespace rueda::launch
