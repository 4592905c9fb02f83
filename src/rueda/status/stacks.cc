#include "rueda/status/stacks.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

namespace rueda::status {
namespace {

constexpr size_t kNamedThreads = 4;  // of those with one stack

// Functions without names tell a reader nothing that the module does not, so those in a row are one line, and
// what lies below the last function with a name is left out. If none has a name, the innermost module stays.
std::string native_text(const std::vector<NativeFrame>& frames) {
  std::string text, unnamed;
  size_t count = 0;
  for (const NativeFrame& frame : frames) {
    if (frame.function.empty()) {
      if (count++ == 0) unnamed = frame.module;
      continue;
    }
    if (count > 0)
      text += "  " + (count == 1 ? "1 function" : std::to_string(count) + " functions") +
              " without a name (" + unnamed + (count == 1 ? ")\n" : ", …)\n");
    count = 0;
    text += "  " + frame.function + " (" + frame.module + ")\n";
  }
  return text.empty() && count > 0 ? "  a function without a name (" + unnamed + ")\n" : text;
}

std::string thread_text(const ThreadStack& thread) {
  std::string text;
  for (const PythonFrame& frame : thread.python)
    text += "  " + frame.function + " (" + frame.file + ":" + std::to_string(frame.line) + ")\n";
  text += native_text(thread.native.frames);
  if (!thread.native.missing.empty()) text += "  no native stack: " + thread.native.missing + "\n";
  return text;
}

}  // namespace

Stacks capture_stacks(Deadline deadline, Caller caller) {
  const PythonText python = capture_python(deadline);
  return join_stacks(capture_native(deadline, caller), python);
}

Stacks join_stacks(std::vector<NativeStack> native, const PythonText& python) {
  Stacks out;
  out.python_missing = python.missing;
  out.had_lock = python.has_lock;
  std::vector<PythonThread> threads = parse_python_text(python.text);
  std::erase_if(threads, [&](const PythonThread& thread) { return thread.ident == python.thread; });
  for (NativeStack& stack : native) {
    if (python.thread != 0 && stack.ident == python.thread) continue;
    ThreadStack& joined = out.threads.emplace_back();
    const auto found = std::ranges::find(threads, stack.ident, &PythonThread::ident);
    if (stack.ident != 0 && found != threads.end()) {
      joined.python = std::move(found->frames);
      threads.erase(found);
    }
    joined.native = std::move(stack);
  }
  // Of threads whose native stack is unknown.
  for (PythonThread& thread : threads) {
    ThreadStack& alone = out.threads.emplace_back();
    alone.native.ident = thread.ident;
    alone.native.missing = "its native stack is not known";
    alone.python = std::move(thread.frames);
  }
  return out;
}

std::string stacks_json(const Stacks& stacks) {
  nlohmann::ordered_json out;
  out["threads"] = nlohmann::ordered_json::array();
  for (const ThreadStack& thread : stacks.threads) {
    const ThreadState& state = thread.native.thread;
    nlohmann::ordered_json one = {
        {"tid", state.tid}, {"name", state.name}, {"state", std::string(1, state.state)}};
    one["python"] = one["native"] = nlohmann::ordered_json::array();
    for (const PythonFrame& frame : thread.python)
      one["python"].push_back({{"file", frame.file}, {"line", frame.line}, {"function", frame.function}});
    for (const NativeFrame& frame : thread.native.frames)
      one["native"].push_back(
          {{"function", frame.function}, {"module", frame.module}, {"offset", frame.offset}});
    if (!thread.native.missing.empty()) one["native_missing"] = thread.native.missing;
    out["threads"].push_back(std::move(one));
  }
  if (!stacks.python_missing.empty()) out["python_missing"] = stacks.python_missing;
  out["python_had_lock"] = stacks.had_lock;
  return out.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string stacks_text(const Stacks& stacks, size_t max_bytes) {
  std::string text;
  if (!stacks.python_missing.empty()) text += "no Python stacks: " + stacks.python_missing + "\n";
  std::vector<std::pair<std::string, std::vector<const ThreadState*>>> alike;  // threads of a pool, mostly
  for (const ThreadStack& thread : stacks.threads) {
    const std::string body = thread_text(thread);
    auto same = std::ranges::find(alike, body, &decltype(alike)::value_type::first);
    if (same == alike.end()) same = alike.insert(same, {body, {}});
    same->second.push_back(&thread.native.thread);
  }
  for (const auto& [body, threads] : alike) {
    text += threads.size() == 1 ? "thread" : std::to_string(threads.size()) + " threads alike:";
    for (size_t i = 0; i < std::min(threads.size(), kNamedThreads); ++i)
      text += (i == 0 ? " " : ", ") + std::to_string(threads[i]->tid) + " " + threads[i]->name;
    text += (threads.size() > kNamedThreads ? ", …\n" : "\n") + body;
    if (text.size() > max_bytes) break;
  }
  if (text.size() > max_bytes) {
    const size_t line = text.rfind('\n', max_bytes);
    text.resize(line == std::string::npos ? 0 : line + 1);
  }
  return text;
}

}  // namespace rueda::status
