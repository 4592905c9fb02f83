// When a schedule begins to overwrite what it was given. Pure; any thread.
#pragma once

#include "rueda/schedule/step.h"

namespace rueda::schedule {

// Called in place: is every write to the buffer a receive, or after one? In a group of two, nothing is lost
// then before both ranks have begun.
bool hears_before_writing(const Schedule& schedule);

}  // namespace rueda::schedule
