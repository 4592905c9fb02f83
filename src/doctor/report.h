// What was found, as values. Pure.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace rueda::doctor {

struct Fact {
  std::string name, value;
};

struct Problem {
  std::string sentence;    // what, where, what to do
  bool is_broken = false;  // true: something will not work; false: advice
};

struct Section {
  std::string title;
  std::vector<Fact> facts;
  std::vector<Problem> problems;

  void add(std::string name, std::string value) { facts.push_back({std::move(name), std::move(value)}); }
  void advise(std::string sentence) { problems.push_back({std::move(sentence), false}); }
  void fail(std::string sentence) { problems.push_back({std::move(sentence), true}); }
};

using Report = std::vector<Section>;

// What is looked at now, for somebody who waits.
using Progress = std::function<void(std::string_view what)>;

bool is_broken(const Report& report);
std::string page(const Report& report);
std::string json(const Report& report);

// "512 B", "64.0 MiB"
std::string bytes_text(unsigned long long bytes);

}  // namespace rueda::doctor
