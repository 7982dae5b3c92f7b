#include "client/import/command.h"

#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <system_error>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client/import/child.h"
#include "client/import/describe.h"
#include "client/import/federation_writer.h"
#include "client/import/importers.h"
#include "client/import/partition.h"

namespace leeway {
namespace {

constexpr char kIdxExample[] =
    "Example: Fashion-MNIST from the Debian package dataset-fashion-mnist, 100 IID clients:\n"
    "  F=/usr/share/datasets/fashion-mnist\n"
    "  leeway data import idx $F/train-images-idx3-ubyte.gz --labels "
    "$F/train-labels-idx1-ubyte.gz \\\n"
    "    --test-images $F/t10k-images-idx3-ubyte.gz --test-labels $F/t10k-labels-idx1-ubyte.gz \\\n"
    "    --out fashion\n"
    "  leeway data partition fashion --by iid --clients 100 --out fashion-iid\n"
    "Example: QMNIST, one client per writer; test images are by other writers:\n"
    "  leeway data import idx train-images-idx3-ubyte.gz --labels "
    "qmnist-train-labels-idx2-int.gz \\\n"
    "    --client-column 2 --test-images t10k-images-idx3-ubyte.gz \\\n"
    "    --test-labels qmnist-test10k-labels-idx2-int.gz --central-test --out qmnist";

constexpr char kCsvExample[] =
    "Example: UCI heart disease, one client per hospital:\n"
    "  leeway data import csv heart_disease --strip-prefix processed. --no-header \\\n"
    "    --columns "
    "age,sex,cp,trestbps,chol,fbs,restecg,thalach,exang,oldpeak,slope,ca,thal,num \\\n"
    "    --drop-columns slope,ca,thal --one-hot cp,restecg --label num --label-positive-above 0 "
    "\\\n"
    "    --scale standard --test-fraction 0.2 --out heart\n"
    "Example: the client is the region of a postcode; regions.csv has rows such as 97*,oregon:\n"
    "  leeway data import csv houses.csv --client-from postcode --map regions.csv --label price "
    "\\\n"
    "    --regression --scale standard --out houses";

// What went wrong is the machine's (a full disk, no memory), or lies in what was asked
// for or in the data.
int Report(const absl::Status& status) {
  if (status.ok()) return 0;
  std::fprintf(stderr, "leeway: %s\n", std::string(status.message()).c_str());
  return absl::IsUnavailable(status) || absl::IsInternal(status) ||
                 absl::IsResourceExhausted(status)
             ? 1
             : 2;
}

int Report(const absl::StatusOr<Json>& federation, const std::string& out) {
  if (!federation.ok()) return Report(federation.status());
  std::fputs(SummaryTable(*federation).c_str(), stdout);
  std::printf("written to  %s\n", out.c_str());
  return 0;
}

// Runs one command and stores its exit code. The libraries below do not throw
// by design; memory can still run out, and paths can still be unreadable.
std::function<void()> Guarded(int* exit_code, std::function<int()> command) {
  return [exit_code, command = std::move(command)] {
    try {
      *exit_code = command();
    } catch (const std::bad_alloc&) {
      *exit_code = Report(absl::ResourceExhaustedError(
          "memory ran out; a file may announce more than it holds. If you trust it, raise "
          "--max-memory, or use a machine with more memory"));
    } catch (const std::exception& error) {
      *exit_code = Report(absl::InternalError(error.what()));
    }
  };
}

// Runs a command that writes `out` in a child process.
int InChild(const ChildLimits& limits, const std::string& out,
            const std::function<int()>& command) {
  return RunInChild(
      limits,
      [&command] {
        int exit_code = 1;
        Guarded(&exit_code, command)();
        return exit_code;
      },
      [&out](pid_t child) {
        std::error_code ignored;
        std::filesystem::remove_all(PartialPath(out, child), ignored);
      });
}

void AddLimitOptions(CLI::App& command, ChildLimits& limits) {
  command.add_flag("--untrusted", limits.restricted,
                   "For files that nobody vouches for: limits memory and time, starts no process "
                   "and loads no plugin");
  command.add_option("--max-memory", limits.memory_gib, "With --untrusted: GiB of memory")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command.add_option("--max-minutes", limits.cpu_minutes, "With --untrusted: minutes of computing")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
}

void AddWriterOptions(CLI::App& command, WriterOptions& options, bool shape) {
  command.add_option("--out", options.out, "Directory to write; must not exist")
      ->required()
      ->type_name("DIR");
  command
      .add_option("--min-samples", options.min_samples,
                  "Leave out clients with fewer training samples")
      ->capture_default_str();
  if (!shape) return;
  command.add_option("--classes", options.classes, "Labels must be below this (default: as found)");
  command.add_option("--shape", options.shape, "Shape of one sample of x, as in 28,28")
      ->delimiter(',')
      ->allow_extra_args(false);
}

void AddSequenceOptions(CLI::App& command, SequenceOptions& options, const char* vocabulary) {
  command.add_option("--sequence", options.length, "Tokens in a row")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command.add_option("--vocabulary", options.vocabulary, vocabulary)->capture_default_str();
  command.add_flag("!--truncate", options.split,
                   "Only the first row of a long text (default: several rows)");
}

// Adds `name` with its own options; `run` is called with them.
template <typename Options>
CLI::App* AddCommand(CLI::App& parent, const char* name, const char* help, int* exit_code,
                     std::shared_ptr<Options> options,
                     absl::StatusOr<Json> (*run)(const Options&)) {
  CLI::App* command = parent.add_subcommand(name, help);
  auto limits = std::make_shared<ChildLimits>();
  AddLimitOptions(*command, *limits);
  command->callback([exit_code, options, limits, run] {
    *exit_code = InChild(*limits, options->writer.out,
                         [&] { return Report(run(*options), options->writer.out); });
  });
  return command;
}

void AddLeaf(CLI::App& parent, int* exit_code) {
  auto options = std::make_shared<LeafOptions>();
  CLI::App* command = AddCommand(parent, "leaf", "LEAF JSON files (.json, .json.gz)", exit_code,
                                 options, ImportLeaf);
  command
      ->add_option("SOURCE", options->source, "Directory with train/ and test/, or with the files")
      ->required();
  command->add_option("--test", options->test, "Directory of the test files");
  command->add_option("--tokens", options->vocabulary,
                      "Inputs are token ids below this (default: x are numbers)");
  AddWriterOptions(*command, options->writer, /*shape=*/true);
  command->footer(
      "Example:\n  leeway data import leaf femnist/data --out data/femnist --shape 28,28");
}

void AddTff(CLI::App& parent, int* exit_code) {
  auto options = std::make_shared<TffOptions>();
  options->sequences.length = 80;
  CLI::App* command =
      AddCommand(parent, "tff", "TensorFlow Federated HDF5: /examples/CLIENT/FEATURE", exit_code,
                 options, ImportTff);
  command->add_option("SOURCE", options->source, "File of training data")->required();
  command->add_option("--test", options->test, "File of test data");
  command->add_option("--feature", options->feature,
                      "Default: pixels, image, snippets (by character) or tokens (by word)");
  command->add_option("--label", options->label, "Default: label or y");
  AddSequenceOptions(*command, options->sequences, "Most tokens to keep; 0: all");
  AddWriterOptions(*command, options->writer, /*shape=*/true);
  command->footer(
      "Example:\n  leeway data import tff fed_emnist_train.h5 --test fed_emnist_test.h5 --out "
      "data/emnist");
}

void AddIdx(CLI::App& parent, int* exit_code) {
  auto options = std::make_shared<IdxOptions>();
  CLI::App* command = AddCommand(
      parent, "idx", "IDX images and labels (MNIST): one client \"all\", or by writer (QMNIST)",
      exit_code, options, ImportIdx);
  command->add_option("IMAGES", options->images, "File of training images")->required();
  command->add_option("--labels", options->labels, "File of training labels")->required();
  command->add_option("--test-images", options->test_images, "File of test images");
  command->add_option("--test-labels", options->test_labels, "File of test labels");
  command
      ->add_option("--label-column", options->label_column,
                   "Of label files with several columns: the class")
      ->capture_default_str();
  command->add_option(
      "--client-column", options->client_column,
      "Of such files: the client (2, the writer, in QMNIST's; default: one client)");
  command->add_flag("--central-test", options->central_test,
                    "All test images in the directory evaluator, none with the clients");
  AddWriterOptions(*command, options->writer, /*shape=*/true);
  command->footer(kIdxExample);
}

void AddCsvColumns(CLI::App& command, CsvOptions& options) {
  command.add_option("--client-column", options.client_column,
                     "Column that names the client (default: one file per client)");
  command.add_option("--client-from", options.client_from,
                     "Column of a code that tells the client, by --map or --client-prefix");
  command.add_option("--map", options.map,
                     "File of two columns, code and client; 97* stands for all codes that begin "
                     "so, * for all others");
  command.add_option("--client-prefix", options.client_prefix,
                     "The client is the code's first so many characters");
  command
      .add_option("--label", options.label,
                  "Column of the label: whole numbers or words are classes, see --regression")
      ->required();
  command.add_option("--columns", options.columns, "Names of the columns, when there is no header")
      ->delimiter(',')
      ->allow_extra_args(false);
  command.add_option("--drop-columns", options.drop_columns, "Columns to leave out")
      ->delimiter(',')
      ->allow_extra_args(false);
  command
      .add_option("--one-hot", options.one_hot, "Columns of categories; the first level is dropped")
      ->delimiter(',')
      ->allow_extra_args(false);
  command
      .add_option("--missing", options.missing,
                  "Marks of missing values, with commas between them or one per option; rows "
                  "with one are left out, as are rows with an empty cell")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->capture_default_str();
}

void AddCsv(CLI::App& parent, int* exit_code) {
  auto options = std::make_shared<CsvOptions>();
  CLI::App* command = AddCommand(parent, "csv", "CSV: a file per client or a client column",
                                 exit_code, options, ImportCsv);
  command->add_option("SOURCES", options->sources, "Files, or directories of files")->required();
  AddCsvColumns(*command, *options);
  command->add_flag("--header,!--no-header", options->header, "The first row names the columns");
  command->add_option("--delimiter", options->delimiter, "Between cells")->capture_default_str();
  command->add_option("--strip-prefix", options->strip_prefix, "Taken off file names");
  command->add_option("--label-positive-above", options->label_positive_above,
                      "The label becomes 1 above this value, else 0");
  command->add_flag("--regression", options->regression, "Keep the label a real number");
  command->add_option("--scale", options->scale, "Number columns: over all training rows")
      ->check(CLI::IsMember({"none", "standard"}))
      ->capture_default_str();
  command->add_option("--test-fraction", options->test_fraction, "Rows of each client to test on")
      ->capture_default_str();
  command->add_option("--seed", options->seed, "Of the choice of test rows")->capture_default_str();
  AddWriterOptions(*command, options->writer, /*shape=*/true);
  command->footer(kCsvExample);
}

void AddText(CLI::App& parent, int* exit_code) {
  auto options = std::make_shared<TextOptions>();
  options->sequences.vocabulary = 10000;
  CLI::App* command = AddCommand(
      parent, "text", "Sentences by user: TSV of user_id, creation_date, type, source_id, tokens",
      exit_code, options, ImportText);
  command->add_option("SOURCE", options->source, "TSV file without quoting, plain or .gz")
      ->required();
  command->add_option("--min-sentences", options->min_sentences, "Leave out users with fewer")
      ->capture_default_str();
  command
      ->add_option("--test-fraction", options->test_fraction,
                   "Of each user's sentences, the last by date")
      ->capture_default_str();
  AddSequenceOptions(*command, options->sequences, "Most frequent words to keep; 0: all");
  AddWriterOptions(*command, options->writer, /*shape=*/false);
  command->footer(
      "Example:\n  leeway data import text sentences.tsv.gz --out data/words --sequence 20");
}

void AddPartition(CLI::App& parent, int* exit_code) {
  auto options = std::make_shared<PartitionOptions>();
  CLI::App* command = AddCommand(parent, "partition", "Deal the samples of a federation anew",
                                 exit_code, options, PartitionFederation);
  command->add_option("SOURCE", options->source, "Federation directory")->required();
  command->add_option("--by", options->by, "The rule")
      ->check(CLI::IsMember({"iid", "dirichlet", "shards", "size", "natural", "shuffle"}))
      ->capture_default_str();
  command->add_option("--clients", options->clients, "Number of clients to make");
  command->add_option("--alpha", options->alpha, "Dirichlet: small is uneven")
      ->capture_default_str();
  command->add_option("--shards-per-client", options->shards_per_client, "Shards")
      ->capture_default_str();
  command->add_option("--sigma", options->sigma, "Size: of the log of the sizes")
      ->capture_default_str();
  command->add_option("--seed", options->seed, "Of all choices")->capture_default_str();
  command->add_flag("--central-test", options->central_test,
                    "All test samples in the directory evaluator, none with the clients");
  AddWriterOptions(*command, options->writer, /*shape=*/false);
  command->footer(
      "iid: equal sizes at random. dirichlet: each class in Dirichlet(alpha) shares.\n"
      "shards: sorted by label, cut, dealt. size: at random in log-normal sizes.\n"
      "natural: clients stay whole. shuffle: at random, every client keeps its sizes.\n"
      "Example:\n  leeway data partition data/all --by dirichlet --alpha 0.3 --clients 100 --out "
      "data/d");
}

void AddDescribe(CLI::App& parent, int* exit_code) {
  struct Options {
    std::string root;
    bool json = false;
    bool check = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = parent.add_subcommand("describe", "Print the summary of a federation");
  command->add_option("DIR", options->root, "Federation directory")->required();
  command->add_flag("--json", options->json, "As JSON");
  command->add_flag("--check", options->check, "Read all labels and token ids and check them");
  command->footer("Example:\n  leeway data describe data/paper --check");
  command->callback(Guarded(exit_code, [options] {
    const absl::StatusOr<Json> federation = DescribeFederation(options->root, options->check);
    if (!federation.ok()) return Report(federation.status());
    const std::string text = options->json ? federation->dump(1) + "\n" : SummaryTable(*federation);
    std::fputs(text.c_str(), stdout);
    return 0;
  }));
}

}  // namespace

void AddImportCommands(CLI::App& data, int* exit_code) {
  CLI::App* import = data.add_subcommand("import", "Turn data files into one directory per client");
  import->require_subcommand(1);
  import->footer("Example:\n  leeway data import leaf femnist/data --out data/femnist");
  AddLeaf(*import, exit_code);
  AddTff(*import, exit_code);
  AddIdx(*import, exit_code);
  AddCsv(*import, exit_code);
  AddText(*import, exit_code);
  AddPartition(data, exit_code);
  AddDescribe(data, exit_code);
}

}  // namespace leeway
