// When a schedule begins to overwrite its input. Pure; any thread.
#pragma once

#include "rueda/schedule/step.h"

namespace rueda::schedule {

// For a call in place: whether every write to the buffer is a receive, or comes after one. In a group of two
// ranks, nothing is then overwritten before both ranks have begun.
bool hears_before_writing(const Schedule& schedule);

}  // namespace rueda::schedule
