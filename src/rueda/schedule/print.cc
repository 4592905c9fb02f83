#include <sstream>

#include "rueda/schedule/step.h"

namespace rueda::schedule {
namespace {

const char* name_of(Action action) {
  switch (action) {
    case Action::kSend:
      return "send";
    case Action::kRecv:
      return "recv";
    case Action::kRecvReduce:
      return "recv_reduce";
    case Action::kCopy:
      return "copy";
    case Action::kReduce:
      return "reduce";
    case Action::kFinish:
      return "finish";
    case Action::kAdasum:
      return "adasum";
  }
  return "?";
}

std::ostream& operator<<(std::ostream& out, const Slice& slice) {
  const char* buffer = slice.buffer == Buffer::kInput    ? "in"
                       : slice.buffer == Buffer::kOutput ? "out"
                                                         : "scratch";
  return out << buffer << '[' << slice.begin << ',' << slice.begin + slice.count << ')';
}

void print(std::ostream& out, const Step& step) {
  out << name_of(step.action);
  const char* wire = step.wire == WireType::kAccumulator ? " as accumulators" : "";
  switch (step.action) {
    case Action::kSend:
      out << ' ' << step.from << " -> " << step.peer << wire;
      break;
    case Action::kRecv:
      out << ' ' << step.to << " <- " << step.peer << wire;
      break;
    case Action::kRecvReduce:
      out << ' ' << step.to << " = " << step.from << " op <- " << step.peer << wire;
      break;
    case Action::kCopy:
    case Action::kFinish:
      out << ' ' << step.to << " = " << step.from;
      break;
    case Action::kReduce:
    case Action::kAdasum:
      out << ' ' << step.to << " = " << step.from << " op " << step.from2;
      break;
  }
  for (size_t i = 0; i < step.after.size(); ++i) out << (i == 0 ? " after " : ",") << step.after[i];
}

}  // namespace

std::string to_string(const Schedule& schedule) {
  std::ostringstream out;
  out << schedule.name << ": " << schedule.steps.size() << " steps, scratch " << schedule.scratch_count
      << '\n';
  for (size_t i = 0; i < schedule.steps.size(); ++i) {
    out << i << ' ';
    print(out, schedule.steps[i]);
    out << '\n';
  }
  return out.str();
}

}  // namespace rueda::schedule
