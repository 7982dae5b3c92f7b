#include "records/store.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/digest.h"

namespace leeway {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

size_t FilesIn(const std::string& directory) {
  return static_cast<size_t>(
      std::distance(fs::directory_iterator(directory), fs::directory_iterator()));
}

class StoreTest : public testing::Test {
 protected:
  StoreTest() {
    std::string pattern = testing::TempDir() + "/store_test.XXXXXX";
    directory_ = mkdtemp(pattern.data());
    config_.set_seed(7);
    config_.set_name("a run");
    config_.mutable_model()->mutable_linear_regression()->set_l2(0.1);
    schema_.add_feature_shape(30);
  }
  ~StoreTest() override { fs::remove_all(directory_); }

  std::unique_ptr<Store> Open() {
    auto store = Store::Open(directory_);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }

  std::unique_ptr<Store> Begun(const std::string& initial = "initial model") {
    std::unique_ptr<Store> store = Open();
    const ModelPtr models[] = {Keep(initial)};
    const absl::Status begun = store->Begin("run-1", config_, schema_, roster_, models, Script(0));
    EXPECT_TRUE(begun.ok()) << begun;
    return store;
  }

  static v1::RoundRecord Record(uint64_t round, const std::string& model) {
    v1::RoundRecord record;
    record.set_round(round);
    record.set_kind(v1::TRAIN_ROUND);
    record.set_round_in_phase(round);
    record.set_reports(3);
    record.set_loss(0.1 + static_cast<double>(round));
    record.set_gradient_norm(std::numeric_limits<double>::quiet_NaN());
    record.set_model_sha256(Sha256Hex(model));
    v1::DriftAtSteps* drift = record.add_drift();
    drift->set_h(10);
    drift->set_average_drift_squared(1e-7);
    drift->set_drift_bound(1e-3);
    return record;
  }

  static v1::ScriptState Script(uint64_t round) {
    v1::ScriptState script;
    script.set_round(round);
    return script;
  }

  static ModelPtr Keep(const std::string& file) {
    return std::make_shared<Model>(Model{Sha256Hex(file), Buffer(file)});
  }

  static absl::Status CommitRound(Store& store, uint64_t round, const std::string& model,
                                  std::vector<NamedModel> names = {}) {
    RoundCommit commit;
    commit.record = Record(round, model);
    commit.accepted = {0, 2, 70000};
    commit.models = {Keep(model)};
    commit.names = std::move(names);
    commit.script = Script(round);
    return store.Commit(commit);
  }

  void Sql(const std::string& statement) {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open((directory_ + "/run.db").c_str(), &db), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(db, statement.c_str(), nullptr, nullptr, nullptr), SQLITE_OK)
        << sqlite3_errmsg(db);
    sqlite3_close(db);
  }

  std::string directory_;
  v1::RunConfig config_;
  v1::DataSchema schema_;
  std::vector<StoredClient> roster_ = {{"a", 10, 1}, {"b", 20, 2}, {"c", 30, 3}};
};

void ExpectSameRun(const Store& store, const v1::RunConfig& config) {
  EXPECT_TRUE(store.begun());
  EXPECT_EQ(store.RunId().value(), "run-1");
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(store.Config().value(), config));
  EXPECT_EQ(store.Schema()->feature_shape(0), 30u);
  ASSERT_EQ(store.Roster()->size(), 3u);
  EXPECT_EQ(store.Roster()->at(2).id, "c");
  EXPECT_EQ(store.Roster()->at(2).examples, 30u);
  EXPECT_EQ(store.Roster()->at(2).test_examples, 3u);
}

TEST_F(StoreTest, EverythingComesBackAfterReopening) {
  std::unique_ptr<Store> store = Begun();
  ASSERT_TRUE(CommitRound(*store, 1, "m1").ok());
  ASSERT_TRUE(CommitRound(*store, 2, "m2").ok());
  v1::Event event;
  event.set_sequence(1);
  event.set_time(1.5);
  event.set_kind(v1::Event::JOINED);
  event.set_subject("a");
  event.set_text("a joined");
  store->AddEvent(event);
  EXPECT_EQ(store->EventsAfter(0)->size(), 1u);
  store.reset();

  store = Open();
  ExpectSameRun(*store, config_);
  EXPECT_EQ(store->Script()->round(), 2u);
  EXPECT_EQ(store->State().value(), v1::RUNNING);
  auto rounds = store->RoundsAfter(0);
  ASSERT_TRUE(rounds.ok()) << rounds.status();
  ASSERT_EQ(rounds->size(), 2u);
  EXPECT_EQ(rounds->at(1).SerializeAsString(), Record(2, "m2").SerializeAsString());
  EXPECT_EQ(store->RoundsAfter(1)->size(), 1u);
  EXPECT_THAT(store->Accepted(1).value(), ElementsAre(0, 2, 70000));
  EXPECT_EQ(store->EventsAfter(0)->at(0).text(), "a joined");
  EXPECT_TRUE(store->EventsAfter(1)->empty());
  EXPECT_EQ(store->LoadModel(Sha256Hex("m2")).value(), "m2");
}

TEST_F(StoreTest, EpochsComeBackWithTheirClients) {
  std::unique_ptr<Store> store = Begun();
  v1::Epoch epoch;
  epoch.set_number(2);
  epoch.set_first_round(5);
  epoch.set_roster(4);
  epoch.set_population(3);
  epoch.add_left(1);
  ASSERT_TRUE(store->AddEpoch(epoch, {{"d", 40, 4, uint64_t{1} << 63}}).ok());
  EXPECT_FALSE(store->AddEpoch(epoch, {}).ok());  // not twice
  store.reset();
  store = Open();
  ASSERT_EQ(store->Roster()->size(), 4u);
  EXPECT_EQ(store->Roster()->at(3).id, "d");
  EXPECT_EQ(store->Roster()->at(3).digest, uint64_t{1} << 63);
  const auto epochs = store->Epochs();
  ASSERT_TRUE(epochs.ok()) << epochs.status();
  ASSERT_EQ(epochs->size(), 2u);
  EXPECT_EQ(epochs->at(0).population(), 3u);
  EXPECT_EQ(epochs->at(0).roster(), 3u);
  EXPECT_EQ(epochs->at(1).SerializeAsString(), epoch.SerializeAsString());
  EXPECT_TRUE(store->CheckWhole().ok());
  store.reset();
  Sql("UPDATE epochs SET population = 4 WHERE number = 2");
  EXPECT_THAT(std::string(Store::OpenReadOnly(directory_).value()->CheckWhole().message()),
              HasSubstr("'epochs' is not as the server wrote it"));
}

TEST_F(StoreTest, ANewStoreHasNotBegun) {
  std::unique_ptr<Store> store = Open();
  EXPECT_FALSE(store->begun());
  EXPECT_EQ(store->State().value(), v1::GATHERING);
  EXPECT_TRUE(absl::IsNotFound(store->Config().status()));
  EXPECT_FALSE(Store::OpenReadOnly(directory_).value()->begun());
}

TEST_F(StoreTest, ARunBeginsOnce) {
  std::unique_ptr<Store> store = Begun();
  EXPECT_TRUE(absl::IsFailedPrecondition(store->Begin("run-2", config_, schema_, roster_, {}, {})));
  EXPECT_EQ(store->RunId().value(), "run-1");
}

TEST_F(StoreTest, AFailedCommitChangesNothing) {
  std::unique_ptr<Store> store = Begun();
  ASSERT_TRUE(CommitRound(*store, 1, "m1").ok());
  // The same round number again: refused as a whole.
  EXPECT_TRUE(absl::IsAlreadyExists(CommitRound(*store, 1, "other")));
  EXPECT_EQ(store->Script()->round(), 1u);
  EXPECT_TRUE(absl::IsNotFound(store->LoadModel(Sha256Hex("other")).status()));
  EXPECT_TRUE(CommitRound(*store, 2, "m2").ok());
}

TEST_F(StoreTest, ADamagedRecordIsNamed) {
  std::unique_ptr<Store> store = Begun();
  ASSERT_TRUE(CommitRound(*store, 1, "m1").ok());
  ASSERT_TRUE(CommitRound(*store, 2, "m2").ok());
  store.reset();
  Sql("UPDATE rounds SET record = record || x'00' WHERE round = 2");
  store = Store::OpenReadOnly(directory_).value();
  auto rounds = store->RoundsAfter(0);
  EXPECT_TRUE(absl::IsDataLoss(rounds.status())) << rounds.status();
  EXPECT_THAT(std::string(rounds.status().message()), HasSubstr("round 2"));
}

TEST_F(StoreTest, WhateverAResumeReadsIsSealed) {
  for (const char* damage : {
           "UPDATE run SET value = x'0801' WHERE key = 'script'",
           "UPDATE run SET value = x'0a00' WHERE key = 'standings'",
           "UPDATE run SET value = value || ' ' WHERE key = 'config'",
           "UPDATE run SET value = 'DONE' WHERE key = 'state'",
           "UPDATE run SET value = 'other' WHERE key = 'run_id'",
           "UPDATE clients SET examples = examples + 1 WHERE position = 0",
           "DELETE FROM clients WHERE position = 1",
           "UPDATE events SET text = 'b joined'",
           "UPDATE names SET sha256 = '00'",
           "UPDATE rounds SET loss = loss * (1 + 1e-15) WHERE round = 1",
           "UPDATE measures SET drift_bound = 2 WHERE round = 2",
           "DELETE FROM run WHERE key = 'seal'",
       }) {
    fs::remove_all(directory_);
    fs::create_directory(directory_);
    std::unique_ptr<Store> store = Begun();
    v1::Event event;
    event.set_sequence(1);
    event.set_text("a joined");
    store->AddEvent(event);
    ASSERT_TRUE(CommitRound(*store, 1, "m1").ok());
    ASSERT_TRUE(CommitRound(*store, 2, "m2").ok());
    store.reset();
    ASSERT_TRUE(Store::OpenReadOnly(directory_).value()->CheckWhole().ok());
    Sql(damage);
    const absl::Status resumed = Store::Open(directory_).status();
    EXPECT_TRUE(absl::IsDataLoss(resumed)) << damage << ": " << resumed;
    EXPECT_TRUE(absl::IsDataLoss(Store::OpenReadOnly(directory_).value()->CheckWhole())) << damage;
  }
}

TEST_F(StoreTest, ASealWithAKeyNeedsTheKey) {
  {
    auto store = Store::Open(directory_, "secret");
    ASSERT_TRUE(store.ok()) << store.status();
    ASSERT_TRUE((*store)->Begin("run-1", config_, schema_, roster_, {}, Script(0)).ok());
    ASSERT_TRUE(CommitRound(**store, 1, "m1").ok());
  }
  EXPECT_TRUE(absl::IsFailedPrecondition(Store::Open(directory_).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(Store::Open(directory_, "another").status()));
  EXPECT_TRUE(Store::Open(directory_, "secret").ok());
}

TEST_F(StoreTest, ALogThatIsGoneIsNoticed) {
  const pid_t child = fork();
  if (child == 0) {
    std::unique_ptr<Store> store = Begun();
    for (uint64_t round = 1; round <= 5; ++round) {
      if (!CommitRound(*store, round, absl::StrCat("m", round)).ok()) _exit(1);
    }
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(fs::remove(directory_ + "/run.db-wal"));
  const absl::Status resumed = Store::Open(directory_).status();
  EXPECT_TRUE(absl::IsDataLoss(resumed)) << resumed;
  EXPECT_THAT(std::string(resumed.message()), HasSubstr("round 5"));
  // Whoever knows that they are gone may go on without them.
  ASSERT_TRUE(fs::remove(directory_ + "/head"));
  EXPECT_TRUE(Store::Open(directory_).ok());
}

TEST_F(StoreTest, ADamagedModelIsNamed) {
  std::unique_ptr<Store> store = Begun();
  const std::string large(3 << 20, 'x');
  ASSERT_TRUE(CommitRound(*store, 1, large).ok());
  const std::string path = directory_ + "/" + Store::NamedModelPath(Sha256Hex(large));
  fs::resize_file(path, 100);
  EXPECT_TRUE(absl::IsDataLoss(store->LoadModel(Sha256Hex(large)).status()));
}

TEST_F(StoreTest, AFileThatIsNoDatabaseIsRefused) {
  std::ofstream(directory_ + "/run.db") << std::string(5000, 'z');
  EXPECT_TRUE(absl::IsDataLoss(Store::Open(directory_).status()));
  EXPECT_TRUE(absl::IsDataLoss(Store::OpenReadOnly(directory_).status()));
}

TEST_F(StoreTest, ASecondServerIsRefused) {
  std::unique_ptr<Store> store = Open();
  absl::Status second = Store::Open(directory_).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(second));
  EXPECT_THAT(std::string(second.message()),
              HasSubstr("another leeway-server is using " + directory_));
  store.reset();
  EXPECT_NE(Open(), nullptr);
}

TEST_F(StoreTest, ASecondServerInAnotherProcessIsRefused) {
  std::unique_ptr<Store> store = Open();
  const pid_t child = fork();
  if (child == 0) _exit(absl::IsFailedPrecondition(Store::Open(directory_).status()) ? 0 : 1);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(StoreTest, AKilledServerLosesNothingCommitted) {
  const pid_t child = fork();
  if (child == 0) {
    std::unique_ptr<Store> store = Begun();
    for (uint64_t round = 1; round <= 20; ++round) {
      if (!CommitRound(*store, round, absl::StrCat("m", round)).ok()) _exit(1);
    }
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  std::unique_ptr<Store> store = Open();
  ExpectSameRun(*store, config_);
  EXPECT_EQ(store->RoundsAfter(0)->size(), 20u);
  EXPECT_EQ(store->LoadModel(Sha256Hex("m20")).value(), "m20");
}

TEST_F(StoreTest, ReadersSeeCommitsWhileTheServerWrites) {
  std::unique_ptr<Store> store = Begun();
  auto reader = Store::OpenReadOnly(directory_);
  ASSERT_TRUE(reader.ok()) << reader.status();
  ExpectSameRun(**reader, config_);
  for (uint64_t round = 1; round <= 3; ++round) {
    ASSERT_TRUE(CommitRound(*store, round, "m").ok());
    EXPECT_EQ((*reader)->RoundsAfter(0)->size(), round);
  }
  ASSERT_TRUE(store->Finish(v1::FAILED, "too few clients", {}).ok());
  store.reset();
  EXPECT_EQ((*reader)->State().value(), v1::FAILED);
  EXPECT_EQ((*reader)->Message().value(), "too few clients");
  EXPECT_EQ(Store::OpenReadOnly(directory_).value()->State().value(), v1::FAILED);
}

TEST_F(StoreTest, ReadingAnAbsentStoreIsNotFound) {
  EXPECT_TRUE(absl::IsNotFound(Store::OpenReadOnly(directory_).status()));
  EXPECT_TRUE(absl::IsNotFound(Store::OpenReadOnly(directory_ + "/nothing").status()));
}

TEST_F(StoreTest, AFinishedRunIsReadableInAReadOnlyDirectory) {
  std::unique_ptr<Store> store = Begun();
  ASSERT_TRUE(store->Finish(v1::DONE, "", {}).ok());
  store.reset();
  fs::permissions(directory_, fs::perms::owner_read | fs::perms::owner_exec);
  auto reader = Store::OpenReadOnly(directory_);
  EXPECT_TRUE(reader.ok() && (*reader)->State().value() == v1::DONE) << reader.status();
  fs::permissions(directory_, fs::perms::owner_all);
}

// Small models are rows, large ones files; both follow the same rules.
class StoreModelsTest : public StoreTest, public testing::WithParamInterface<size_t> {
 protected:
  static std::string Model(int i) { return absl::StrCat(i, std::string(GetParam(), 'm')); }
  std::string Named(const std::string& name) const {
    return ReadFile(directory_ + "/" + Store::NamedModelPath(name));
  }
};

TEST_P(StoreModelsTest, NamedModelsAndTheLastTwoAreKept) {
  std::unique_ptr<Store> store = Begun(Model(0));
  ASSERT_TRUE(CommitRound(*store, 1, Model(1)).ok());
  ASSERT_TRUE(CommitRound(*store, 2, Model(2), {{"optimum", Sha256Hex(Model(2))}}).ok());
  for (int i = 3; i <= 6; ++i) {
    ASSERT_TRUE(CommitRound(*store, static_cast<uint64_t>(i), Model(i)).ok());
  }
  for (int i : {0, 2, 5, 6}) EXPECT_EQ(store->LoadModel(Sha256Hex(Model(i))).value(), Model(i));
  for (int i : {1, 3, 4}) {
    EXPECT_TRUE(absl::IsNotFound(store->LoadModel(Sha256Hex(Model(i))).status())) << i;
  }
  // Naming a model of an earlier round.
  ASSERT_TRUE(store->Finish(v1::DONE, "", {{"final", Sha256Hex(Model(6))}}).ok());
  EXPECT_EQ(Named("initial"), Model(0));
  EXPECT_EQ(Named("optimum"), Model(2));
  EXPECT_EQ(Named("final"), Model(6));
  EXPECT_EQ(store->NamedModels()->size(), 3u);
  const bool rows = GetParam() < (1 << 20);
  EXPECT_EQ(FilesIn(directory_ + "/models"), rows ? 3u : 3u + 4u);
}

TEST_P(StoreModelsTest, ANameCanMove) {
  std::unique_ptr<Store> store = Begun(Model(0));
  ASSERT_TRUE(CommitRound(*store, 1, Model(1), {{"best", Sha256Hex(Model(1))}}).ok());
  ASSERT_TRUE(CommitRound(*store, 2, Model(2), {{"best", Sha256Hex(Model(2))}}).ok());
  ASSERT_TRUE(CommitRound(*store, 3, Model(2), {{"best", Sha256Hex(Model(2))}}).ok());
  EXPECT_EQ(Named("best"), Model(2));
  EXPECT_TRUE(
      absl::IsNotFound(CommitRound(*store, 4, Model(3), {{"best", Sha256Hex("never seen")}})));
}

INSTANTIATE_TEST_SUITE_P(Sizes, StoreModelsTest, testing::Values(100, 2 << 20));

TEST_F(StoreTest, LeftoversOfACrashAreRemoved) {
  Begun(std::string(2 << 20, 'i')).reset();
  const std::string models = directory_ + "/models/";
  std::ofstream(models + "final.safetensors.tmp") << "half";
  std::ofstream(models + std::string(64, 'a') + ".safetensors") << "never committed";
  EXPECT_EQ(FilesIn(models), 4u);
  Open().reset();
  EXPECT_EQ(FilesIn(models), 2u);  // the initial model by digest and by name
}

TEST_F(StoreTest, RelaxedDurabilityGivesTheSameRecords) {
  config_.set_durability(v1::RELAXED);
  std::unique_ptr<Store> store = Begun();
  for (uint64_t round = 1; round <= 50; ++round) {
    ASSERT_TRUE(CommitRound(*store, round, absl::StrCat("m", round)).ok());
  }
  store.reset();
  store = Open();
  ExpectSameRun(*store, config_);
  EXPECT_EQ(store->RoundsAfter(0)->size(), 50u);
}

// Rounds that are written together.
class RelaxedStoreTest : public StoreTest, public testing::WithParamInterface<int> {
 protected:
  RelaxedStoreTest() { config_.set_durability(v1::RELAXED); }
  static std::string Model(int i) { return std::string(GetParam(), static_cast<char>('a' + i)); }

  // What a process that died now would leave behind.
  std::string Remains() {
    const std::string copy = directory_ + ".copy";
    fs::remove_all(copy);
    fs::copy(directory_, copy, fs::copy_options::recursive);
    return copy;
  }
  void ExpectRemains(uint64_t round, const std::string& model) {
    const std::string copy = Remains();
    {
      auto store = Store::Open(copy);
      ASSERT_TRUE(store.ok()) << store.status();
      EXPECT_EQ((*store)->LastRound().value(), round);
      EXPECT_EQ((*store)->Script()->round(), static_cast<uint64_t>(round));
      EXPECT_EQ((*store)->LoadModel(Sha256Hex(model)).value(), model);
    }
    fs::remove_all(copy);
  }
};

TEST_P(RelaxedStoreTest, AProcessThatDiesLosesWholeRoundsSinceTheLastFlush) {
  std::unique_ptr<Store> store = Begun(Model(0));
  ExpectRemains(0, Model(0));
  for (int round = 1; round <= 3; ++round) {
    ASSERT_TRUE(CommitRound(*store, static_cast<uint64_t>(round), Model(round)).ok());
  }
  ExpectRemains(0, Model(0));
  ASSERT_TRUE(store->Flush().ok());
  ExpectRemains(3, Model(3));
  ASSERT_TRUE(CommitRound(*store, 4, Model(4)).ok());
  ExpectRemains(3, Model(3));
  ASSERT_TRUE(store->Flush().ok());
  ASSERT_TRUE(store->Flush().ok());
  ExpectRemains(4, Model(4));
  ASSERT_TRUE(CommitRound(*store, 5, Model(5)).ok());
  store.reset();  // a process that stops loses nothing
  ExpectRemains(5, Model(5));
}

TEST_P(RelaxedStoreTest, AModelThatComesBackBeforeTheFlushIsThere) {
  std::unique_ptr<Store> store = Begun(Model(0));
  ASSERT_TRUE(CommitRound(*store, 1, Model(1)).ok());
  ASSERT_TRUE(CommitRound(*store, 2, Model(2)).ok());
  ASSERT_TRUE(store->Flush().ok());
  // By round 4 model 1 is forgotten, and in round 5 it is needed again.
  for (const int model : {3, 4, 1}) {
    ASSERT_TRUE(CommitRound(*store, store->LastRound().value() + 1, Model(model)).ok());
  }
  ASSERT_TRUE(store->Flush().ok());
  ExpectRemains(5, Model(1));
  const bool rows = GetParam() < (1 << 20);
  EXPECT_EQ(FilesIn(directory_ + "/models"), rows ? 1u : 2u + 2u);  // initial, and the last two
}

INSTANTIATE_TEST_SUITE_P(Sizes, RelaxedStoreTest, testing::Values(100, 2 << 20));

TEST_F(StoreTest, WhatAFlushCouldNotWriteIsSaidAndLeavesTheRunAsItWas) {
  config_.set_durability(v1::RELAXED);
  const std::string large(2 << 20, 'l');
  std::unique_ptr<Store> store = Begun();
  ASSERT_TRUE(CommitRound(*store, 1, "m1").ok());
  ASSERT_TRUE(store->Flush().ok());
  ASSERT_TRUE(CommitRound(*store, 2, large).ok());
  const std::string path = directory_ + "/" + Store::NamedModelPath(Sha256Hex(large));
  fs::create_directory(path + ".tmp");  // in its way
  EXPECT_FALSE(store->Flush().ok());
  EXPECT_THAT(CommitRound(*store, 3, "m3").message(), HasSubstr(".tmp"));
  EXPECT_FALSE(store->Flush().ok());
  v1::Event event;
  event.set_sequence(1);
  store->AddEvent(event);
  store.reset();
  fs::remove(path + ".tmp");
  store = Open();
  EXPECT_EQ(store->LastRound().value(), 1u);
  EXPECT_EQ(store->Script()->round(), 1u);
  EXPECT_EQ(store->LoadModel(Sha256Hex("m1")).value(), "m1");
  EXPECT_EQ(store->EventsAfter(0)->size(), 1u);
}

TEST_F(StoreTest, ACommitThatFailsTakesTheRoundsBackThatWereNotWritten) {
  config_.set_durability(v1::RELAXED);
  const auto model = [](int i) { return std::string(2 << 20, static_cast<char>('a' + i)); };
  std::unique_ptr<Store> store = Begun(model(0));
  for (int round = 1; round <= 2; ++round) {
    ASSERT_TRUE(CommitRound(*store, static_cast<uint64_t>(round), model(round)).ok());
  }
  ASSERT_TRUE(store->Flush().ok());
  for (int round = 3; round <= 5; ++round) {  // model 2 is forgotten
    ASSERT_TRUE(CommitRound(*store, static_cast<uint64_t>(round), model(round)).ok());
  }
  EXPECT_FALSE(CommitRound(*store, 5, model(6)).ok());  // there is one already
  EXPECT_FALSE(store->Flush().ok());
  store.reset();
  store = Open();
  EXPECT_EQ(store->LastRound().value(), 2u);
  EXPECT_EQ(store->LoadModel(Sha256Hex(model(2))).value(), model(2));
}

}  // namespace
}  // namespace leeway
