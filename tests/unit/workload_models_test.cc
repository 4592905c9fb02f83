#include "workload/models.h"

#include <gmock/gmock.h>

#include <cstdio>
#include <fstream>
#include <set>
#include <sstream>
#include <tuple>

#include "workload/json_text.h"

namespace rueda::workload::models_test {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Published {
  const char* name;
  int64_t total;
  size_t tensors;
  const char *first, *last;  // in the order of backward
};

class Models : public ::testing::TestWithParam<Published> {};

TEST_P(Models, have_the_published_number_of_parameters) {
  const Result<Model> found = find_model(GetParam().name);
  ASSERT_TRUE(found.is_ok()) << found.status().why;
  const Model& model = found.value();
  EXPECT_EQ(model.name, GetParam().name);
  EXPECT_EQ(model.total(), GetParam().total);
  EXPECT_EQ(model.parameters.size(), GetParam().tensors);
  EXPECT_EQ(model.parameters.front().name, GetParam().first);
  EXPECT_EQ(model.parameters.back().name, GetParam().last);
  EXPECT_GT(model.compute_ms, 0);
  std::set<std::string> names;
  for (const Parameter& parameter : model.parameters) names.insert(parameter.name);
  EXPECT_EQ(names.size(), model.parameters.size());
}

INSTANTIATE_TEST_SUITE_P(
    All, Models,
    ::testing::Values(Published{"resnet50", 25'557'032, 161, "fc.bias", "conv1.weight"},
                      Published{"resnet101", 44'549'160, 314, "fc.bias", "conv1.weight"},
                      Published{"inception_v3", 27'161'264, 292, "fc.bias", "Conv2d_1a_3x3.conv.weight"},
                      Published{"googlenet", 6'998'552, 116, "fc.bias", "conv1.weight"},
                      Published{"lstm_large", 66'022'000, 7, "decoder.bias", "embedding.weight"},
                      Published{"vgg19", 143'667'240, 38, "classifier.6.bias", "features.0.weight"},
                      Published{"vgg16", 138'357'544, 32, "classifier.6.bias", "features.0.weight"},
                      Published{"bert_base", 109'482'240, 199, "pooler.dense.bias",
                                "embeddings.word_embeddings.weight"},
                      Published{"gpt2", 124'439'808, 148, "ln_f.bias", "wte.weight"}),
    [](const auto& published) { return std::string(published.param.name); });

// The share of the bytes that is ready within the first tenth of backward.
double early_share(const Model& model) {
  const std::vector<double> ready = model.ready_ms();
  const double until = model.forward_ms() + 0.1 * (model.compute_ms - model.forward_ms());
  int64_t early = 0;
  for (size_t i = 0; i < ready.size(); ++i) early += ready[i] <= until ? model.parameters[i].count : 0;
  return static_cast<double>(early) / static_cast<double>(model.total());
}

TEST(ModelFiles, have_the_ready_times_of_their_multiply_adds) {
  for (const auto& [name, share] : {std::pair("vgg16", 0.945), std::pair("inception_v3", 0.398)})
    EXPECT_NEAR(early_share(find_model(name).value()), share, 0.001) << name;
  for (const std::string& name : model_names()) {
    const Model model = find_model(name).value();
    ASSERT_EQ(model.stated_ready_ms.size(), model.parameters.size()) << name;
    EXPECT_NEAR(model.ready_ms().back(), model.compute_ms, 1e-3) << name;
    EXPECT_NEAR(model.forward_ms(), model.compute_ms / 3, 1e-3) << name;
  }
}

TEST(ModelFiles, are_exactly_those_tested_here) { EXPECT_EQ(model_names().size(), 9U); }

TEST(ModelFiles, unknown_name_lists_those_known) {
  EXPECT_THAT(find_model("resnet51").status().why, HasSubstr("resnet101, resnet50, vgg16"));
  EXPECT_THAT(find_model("/nowhere/m.json").status().why, HasSubstr("cannot read /nowhere/m.json"));
}

TEST(ModelFiles, of_no_end_are_read_no_further_than_the_limit) {
  EXPECT_EQ(read_text("/dev/zero", "cluster").status().why,
            "/dev/zero has more than 256 MiB, which no cluster needs; check the path of the cluster");
  const std::string path = testing::TempDir() + "/largest_workload_text";
  std::ofstream file(path);
  file.seekp(kMostTextBytes - 1);  // the rest is a hole
  file << "x" << std::flush;
  const Result<std::string> largest = read_text(path, "model");
  ASSERT_TRUE(largest.is_ok());
  EXPECT_EQ(largest.value().size(), kMostTextBytes);
  file << "y" << std::flush;
  EXPECT_FALSE(read_text(path, "model").is_ok());
  std::remove(path.c_str());
}

TEST(ModelFiles, malformed_ones_are_refused_by_what_is_wrong) {
  const std::string head = R"({"name": "m", "source": "s", "compute_source": "c", "compute_ms": 1, )";
  ASSERT_TRUE(parse_model(head + R"("total": 3, "parameters": [["a", 1], ["b", 2]]})", "F").is_ok());
  EXPECT_THAT(parse_model(head + R"("total": 4, "parameters": [["a", 1], ["b", 2]]})", "F").status().why,
              HasSubstr("not the sum of its parameters, 3"));
  EXPECT_THAT(
      parse_model(head + R"("total": 3, "parameters": [["a", 1], ["b", 1], ["a", 1]]})", "F").status().why,
      HasSubstr(R"(F is not a list of gradients: two of "parameters" are named "a"; give each )"
                "gradient a name of its own"));
  for (const std::string& text :
       {std::string("{"), std::string("[]"), std::string(R"({"name": 3})"),
        head + R"("total": 0, "parameters": []})", head + R"("total": 1, "parameters": [["a", -1]]})",
        head + R"("total": 1, "parameters": [["a"]]})", head + R"("total": 1})",
        std::string(R"({"name": "m", "source": "s", "compute_source": "c", "compute_ms": 1e15, "total": 1, )"
                    R"("parameters": [["a", 1]]})")})
    EXPECT_THAT(parse_model(text, "F").status().why, HasSubstr("F is not a list of gradients")) << text;
}

constexpr const char* kHead =
    R"({"name": "m", "source": "s", "compute_source": "c", "compute_ms": 9, "total": 3,
    "parameters": [["b", 1], ["a", 2]])";

TEST(ReadyTimes, are_those_of_the_file) {
  const Result<Model> model = parse_model(
      std::string(kHead) + R"(, "ready_ms": [4.5, 9], "spread": {"step": 0.03, "rank": 0}, "world": 4})",
      "F");
  ASSERT_TRUE(model.is_ok()) << model.status().why;
  EXPECT_THAT(model.value().ready_ms(), ElementsAre(4.5, 9));
  ASSERT_TRUE(model.value().spread.has_value());
  EXPECT_EQ(model.value().spread->step, 0.03);
  EXPECT_EQ(model.value().spread->rank, 0);
  EXPECT_EQ(model.value().world, 4);
}

TEST(ReadyTimes, are_even_in_the_last_two_thirds_where_the_file_has_none) {
  const Model model = parse_model(std::string(kHead) + "}", "F").value();
  EXPECT_THAT(model.ready_ms(), ElementsAre(6, 9));
  EXPECT_EQ(model.forward_ms(), 3);
  EXPECT_FALSE(model.spread.has_value());
  EXPECT_EQ(model.world, 0);
}

TEST(ReadyTimes, that_contradict_themselves_are_refused_by_what_is_wrong) {
  for (const auto& [rest, why] : std::vector<std::pair<const char*, const char*>>{
           {R"("ready_ms": [4])", "not a list of 2 numbers, one for each"},
           {R"("ready_ms": 4)", "not a list of 2 numbers"},
           {R"("ready_ms": [0, 9])", "of b is 0, and not a number above 0"},
           {R"("ready_ms": [4, 9.5])", "of a is 9.5, and not a number above 0 and up to \"compute_ms\", 9"},
           {R"("ready_ms": [4, "late"])", "of a is \"late\""},
           {R"("ready_ms": [4, 3])", "of a is 3, before that of b, 4; put \"parameters\" into the order"},
           {R"("spread": 0.1)", "\"spread\" is not"},
           {R"("spread": {"step": 0.1})", "\"spread\" is not"},
           {R"("spread": {"step": 0.1, "rank": 1})", "from 0 to less than 1"},
           {R"("spread": {"step": -0.1, "rank": 0})", "from 0 to less than 1"},
           {R"("world": 0)", "\"world\" is not a number of ranks"},
           {R"("world": 2.5)", "\"world\" is not a number of ranks"},
           {R"("world": 4294967298)", "\"world\" is not a number of ranks"}}) {
    const Status status = parse_model(std::string(kHead) + ", " + rest + "}", "F").status();
    EXPECT_THAT(status.why, HasSubstr("F is not a list of gradients")) << rest;
    EXPECT_THAT(status.why, HasSubstr(why)) << rest;
  }
}

TEST(ReadyTimes, tell_when_the_forward_pass_needs_a_tensor) {
  Model model = parse_model(std::string(kHead) + "}", "F").value();
  EXPECT_THAT(model.needed_ms(), ElementsAre(1.5, 0));  // a is the first layer, and takes half of the pass
  model.stated_ready_ms = {8, 9};  // b is the costly layer: forward comes to it after a sixth
  EXPECT_THAT(model.needed_ms(), ElementsAre(DoubleNear(0.5, 1e-9), 0));
  model.stated_ready_ms = {1, 9};  // earlier than a third: so short was the forward pass
  EXPECT_EQ(model.forward_ms(), 1);
}

TEST(ModelText, is_read_back) {
  Model model = parse_model(std::string(kHead) + "}", "F").value();
  model.name = "a \"quoted\" name, and \xff";  // not UTF-8
  model.compute_ms = 12.34567;
  model.stated_ready_ms = {0.00001, 12.34567};
  model.spread = Spread{.step = 0.0312, .rank = 0};
  model.world = 3;
  const Result<Model> read = parse_model(text_of(model), "F");
  ASSERT_TRUE(read.is_ok()) << read.status().why << text_of(model);
  EXPECT_THAT(read.value().name, HasSubstr("a \"quoted\" name"));
  EXPECT_EQ(read.value().total(), 3);
  EXPECT_THAT(read.value().ready_ms(), ElementsAre(0.001, 12.346));
  EXPECT_EQ(read.value().spread->step, 0.0312);
  EXPECT_EQ(read.value().world, 3);
}

TEST(ModelText, of_many_tensors_has_lines_of_bounded_length) {
  Model model = parse_model(std::string(kHead) + "}", "F").value();
  model.parameters.clear();
  for (int i = 0; i < 200; ++i) model.parameters.push_back({"layer" + std::to_string(i), 1});
  model.compute_ms = 500;
  for (int i = 0; i < 200; ++i) model.stated_ready_ms.push_back(100.125 + i);
  const std::string text = text_of(model);
  EXPECT_TRUE(parse_model(text, "F").is_ok());
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 110U) << line;
}

constexpr const char* kExchanging = R"({"name": "moe", "source": "s", "compute_source": "c", "compute_ms": 10,
  "total": 5, "parameters": [["a", 5]], "exchanges": [
    {"name": "to", "operation": "alltoall", "elements": 64, "at_ms": 2.5},
    {"name": "rows", "operation": "allgather", "elements": 8, "at_ms": 10, "waits": false}]})";

TEST(Exchanges, are_read_with_their_operations_and_written_again) {
  const Result<Model> read = parse_model(kExchanging, "F");
  ASSERT_TRUE(read.is_ok()) << read.status().why;
  const Result<Model> again = parse_model(text_of(read.value()), "F");
  ASSERT_TRUE(again.is_ok()) << again.status().why;
  for (const Model* model : {&read.value(), &again.value()}) {
    ASSERT_EQ(model->exchanges.size(), 2U);
    const Exchange &to = model->exchanges[0], &rows = model->exchanges[1];
    EXPECT_EQ(std::tuple(to.name, to.what, to.count, to.at_ms, to.is_awaited),
              std::tuple("to", Collective::kAlltoall, 64, 2.5, true));
    EXPECT_EQ(std::tuple(rows.name, rows.what, rows.count, rows.at_ms, rows.is_awaited),
              std::tuple("rows", Collective::kAllgather, 8, 10.0, false));
  }
  EXPECT_DOUBLE_EQ(stretched(read.value(), 40, 1).exchanges[0].at_ms, 10);
}

TEST(Exchanges, come_before_a_gradient_of_the_same_time) {
  const std::vector<Submission> order = submissions_of(parse_model(kExchanging, "F").value());
  ASSERT_EQ(order.size(), 3U);
  EXPECT_TRUE(order[0].is_exchange && order[1].is_exchange && !order[2].is_exchange);
  EXPECT_EQ(order[1].at_ms, order[2].at_ms);
}

TEST(Exchanges, that_make_no_sense_are_refused_by_what_is_wrong) {
  const auto why = [](const std::string& from, const std::string& to) {
    std::string text = kExchanging;
    text.replace(text.find(from), from.size(), to);
    return parse_model(text, "F").status().why;
  };
  EXPECT_THAT(why("\"alltoall\"", "\"gather\""),
              HasSubstr("\"operation\" of exchange to is none of allreduce"));
  EXPECT_THAT(why("64", "0"), HasSubstr("\"elements\" of exchange to is not a positive number"));
  EXPECT_THAT(why("2.5", "11"),
              HasSubstr("\"at_ms\" of exchange to is not a number from 0 to \"compute_ms\", 10"));
  EXPECT_THAT(why("\"at_ms\": 10,", "\"at_ms\": 1,"),
              HasSubstr("exchange rows begins before the one above it"));
  EXPECT_THAT(why("\"rows\"", "\"to\""), HasSubstr("two of \"exchanges\" are named to"));
  EXPECT_THAT(why("\"waits\": false", "\"waits\": 1"),
              HasSubstr("\"waits\" of exchange rows is not true or false"));
  EXPECT_THAT(why("\"waits\"", "\"wait\""), HasSubstr("exchange rows has \"wait\", which is none of"));
}

// Three gradients of 4000 bytes are ready 20, 30 and 40 ms after the start.
Model three_gradients() {
  Model model;
  model.compute_ms = 40;
  model.parameters = {{"c", 1000}, {"b", 1000}, {"a", 1000}};
  model.stated_ready_ms = {20, 30, 40};
  return model;
}

TEST(EarliestEnd, is_one_transfer_after_backward_if_the_link_is_fast) {
  EXPECT_DOUBLE_EQ(earliest_end_ms(three_gradients(), 1, 1.0 / 4000), 41);
}

TEST(EarliestEnd, is_all_transfers_after_the_first_gradient_if_the_link_is_slow) {
  EXPECT_DOUBLE_EQ(earliest_end_ms(three_gradients(), 1, 20.0 / 4000), 20 + 3 * 20);
}

TEST(EarliestEnd, counts_the_time_in_which_the_link_has_nothing_to_send) {
  Model model = three_gradients();
  model.parameters[0].count = 100;  // its transfer takes 2 ms, and then the link waits for the next gradient
  EXPECT_DOUBLE_EQ(earliest_end_ms(model, 1, 20.0 / 4000), 30 + 2 * 20);
}

TEST(EarliestEnd, stretches_computing_and_not_the_link) {
  EXPECT_DOUBLE_EQ(earliest_end_ms(three_gradients(), 2.5, 1.0 / 4000), 101);
}

TEST(EarliestEnd, is_not_before_the_end_of_computing) {
  Model model = three_gradients();
  model.stated_ready_ms = {1, 2, 3};
  EXPECT_DOUBLE_EQ(earliest_end_ms(model, 1, 1.0 / 4000), 40);
}

}  // namespace
}  // namespace rueda::workload::models_test
