// What is missing among the records of a rank, and which part of a job has all of them. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "rueda/base/clock.h"
#include "timeline/records.h"

namespace rueda::timeline {

// The times are of the rank's own clock; 0: none.
struct Loss {
  int64_t records = 0;                    // 0: the timeline was stopped and started again
  int error = 0;                          // why they could not be written (errno); 0: the writer was too slow
  Nanos from = 0, until = 0;              // the last record before it, and the first one after it
  Nanos mark_before = 0, mark_after = 0;  // of steps
};

// In the order of the records.
class Losses {
 public:
  void add(const Gap& gap);
  void note(Nanos when, bool is_mark);
  [[nodiscard]] const std::vector<Loss>& all() const { return all_; }

 private:
  void begin_loss();

  std::vector<Loss> all_;
  bool is_paused_ = false;  // until a record comes: an epoch may as well end here
  Nanos last_ = 0, last_mark_ = 0;
};

// Of those that are not pauses; "" if there are none.
// "120 records from 3 s to 5 s after it began, because its disk was full (No space left on device)"
std::string losses_text(const std::vector<Loss>& losses, Nanos began);

// "The timeline was stopped from 3 s to 5 s after it began."; "": it was not.
std::string pauses_text(const std::vector<Loss>& losses, Nanos began);

struct Stretch {
  Nanos from = 0, until = 0;
};
// The longest part of [from, until] that is in none of the gaps.
Stretch longest_whole(Stretch all, std::vector<Stretch> gaps);

}  // namespace rueda::timeline
