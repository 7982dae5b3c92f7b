// The subcommands of `leeway certs`: their options, and what they print.
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "cli/certs.h"
#include "cli/run.h"
#include "common/status.h"
#include "records/json_text.h"

namespace leeway {
namespace {

using nlohmann::ordered_json;

constexpr char kServerName[] = "server";

std::string WhatFor(const Certificate& certificate) {
  if (!certificate.hosts.empty()) return absl::StrJoin(certificate.hosts, " ");
  std::vector<std::string> what;
  for (const Grant& grant : certificate.grants) {
    what.push_back(absl::StrCat(grant.evaluator ? "evaluator " : "",
                                grant.client.empty() ? "any client" : grant.client, " (at most ",
                                grant.cap(), " examples)"));
    if (what.size() == 3 && certificate.grants.size() > 4) {
      what.push_back(absl::StrCat("... ", certificate.grants.size(), " clients in all"));
      break;
    }
  }
  if (certificate.observer) what.push_back("may watch");
  return absl::StrJoin(what, ", ");
}

const char* KindOf(const IssuedCertificate& issued) {
  return issued.certificate.hosts.empty() ? "client" : "server";
}

const char* StateOf(const IssuedCertificate& issued) {
  if (issued.revoked) return "revoked";
  return absl::Now() > issued.certificate.not_after ? "expired" : "valid";
}

std::string ListJson(const std::vector<IssuedCertificate>& all) {
  ordered_json list = ordered_json::array();
  for (const IssuedCertificate& issued : all) {
    const Certificate& c = issued.certificate;
    ordered_json clients = ordered_json::array();
    ordered_json evaluators = ordered_json::array();
    for (const Grant& grant : c.grants) {  // without a client: any
      ordered_json client = {{"client", nullptr}, {"examples", grant.cap()}};
      if (!grant.client.empty()) client["client"] = grant.client;
      (grant.evaluator ? evaluators : clients).push_back(std::move(client));
    }
    list.push_back(
        {{"name", c.name},
         {"kind", KindOf(issued)},
         {"state", StateOf(issued)},
         {"expires", absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", c.not_after, absl::UTCTimeZone())},
         {"hosts", c.hosts},
         {"clients", std::move(clients)},
         {"evaluators", std::move(evaluators)},
         {"observer", c.observer}});
  }
  return JsonText(list);
}

absl::Status PrintList(const std::string& directory, bool json) {
  LEEWAY_ASSIGN_OR_RETURN(const std::vector<IssuedCertificate> all, ListIssued(directory));
  if (json) {
    absl::PrintF("%s\n", ListJson(all));
    return absl::OkStatus();
  }
  absl::PrintF("%-20s %-7s %-8s %-20s %s\n", "NAME", "KIND", "STATE", "EXPIRES", "FOR");
  for (const IssuedCertificate& issued : all) {
    const Certificate& c = issued.certificate;
    absl::PrintF("%-20s %-7s %-8s %-20s %s\n", c.name, KindOf(issued), StateOf(issued),
                 absl::FormatTime("%Y-%m-%d %H:%M UTC", c.not_after, absl::UTCTimeZone()),
                 WhatFor(c));
  }
  return absl::OkStatus();
}

constexpr char kExamples[] =
    "Examples:\n"
    "  leeway certs init pki\n"
    "  leeway certs server pki --host fl.example.org\n"
    "  leeway certs client pki hospital_a --examples 5000\n"
    "  leeway-server ... --tls-ca pki/ca.crt --tls-cert pki/server.crt --tls-key pki/server.key "
    "--revoked pki/revoked.crl\n"
    "  leeway-client ... --tls-ca ca.crt --tls-cert hospital_a.crt --tls-key hospital_a.key\n"
    "A client process needs ca.crt and its own pair, and nothing else of the directory.";

// What the subcommands' callbacks use; lives as long as the app.
struct CertsOptions {
  std::string directory;
  std::string authority = "Leeway";
  int authority_days = kDaysOfAuthority;
  IssueOptions issue;
  std::vector<std::string> clients;
  uint64_t examples = 0;
  bool any = false;
  bool evaluator = false;
  std::string revoke;
  bool json = false;
};

absl::Status IssueClient(CertsOptions& options) {
  IssueOptions& issue = options.issue;
  for (const std::string& id : options.clients) {
    issue.grants.push_back({id, options.examples, options.evaluator});
  }
  if (options.any) issue.grants.push_back({"", options.examples, options.evaluator});
  if (issue.grants.empty() && !issue.observer) {
    return absl::InvalidArgumentError(
        "name the clients that the holder may host, or give --any or --observer");
  }
  if (issue.name.empty()) {
    issue.name = !options.clients.empty() ? options.clients[0] : options.any ? "host" : "observer";
  }
  return Issue(options.directory, issue);
}

absl::Status PrintIssued(const CertsOptions& options) {
  const TlsFiles files = FilesOf(options.directory, options.issue.name);
  absl::PrintF("made %s and %s (keep the .key private)\n", files.certificate, files.key);
  return absl::OkStatus();
}

absl::Status IssueServer(CertsOptions& o) {
  // Tools on the server's own machine reach it by these.
  for (const char* local : {"localhost", "127.0.0.1", "::1"}) {
    if (std::find(o.issue.hosts.begin(), o.issue.hosts.end(), local) == o.issue.hosts.end()) {
      o.issue.hosts.push_back(local);
    }
  }
  if (o.issue.name.empty()) o.issue.name = kServerName;
  LEEWAY_RETURN_IF_ERROR(Issue(o.directory, o.issue));
  return PrintIssued(o);
}

void DeclareClientFlags(CLI::App& client, CertsOptions& options) {
  client.add_option("ID", options.clients, "Clients that the holder may host");
  client
      .add_option("--examples", options.examples,
                  "Most examples each of them may claim, for training and for tests "
                  "(default: 1000000)")
      ->check(CLI::Range(uint64_t{1}, kMostExamples));
  client.add_flag("--evaluator", options.evaluator,
                  "They are evaluators: each holds a central test set and does not train");
  client.add_flag("--any", options.any, "The holder may host any client: a trusted machine");
  client.add_flag("--observer", options.issue.observer, "The holder may watch the run");
}

}  // namespace

CLI::App* AddCertsCommands(CLI::App& app, int* exit_code) {
  CLI::App* certs = app.add_subcommand("certs", "Make, list and revoke certificates (mutual TLS)");
  certs->require_subcommand(1);
  certs->footer(kExamples);
  auto options = std::make_shared<CertsOptions>();
  const auto add = [&](const char* name, const char* help,
                       std::function<absl::Status(CertsOptions&)> work) {
    CLI::App* command = certs->add_subcommand(name, help);
    command->add_option("DIR", options->directory, "The authority's directory")->required();
    command->callback([options, exit_code, work = std::move(work)] {
      const absl::Status status = work(*options);
      if (status.ok()) return;
      absl::FPrintF(stderr, "leeway: %s\n", std::string(status.message()));
      const bool usage = absl::IsInvalidArgument(status) || absl::IsAlreadyExists(status) ||
                         absl::IsNotFound(status);
      *exit_code = usage ? kExitUsage : kExitFailed;
    });
    return command;
  };
  CLI::App* init = add("init", "Make an authority in a new directory", [](CertsOptions& o) {
    LEEWAY_RETURN_IF_ERROR(MakeAuthority(o.directory, o.authority, o.authority_days));
    absl::PrintF("made an authority in %s; keep %s/ca.key private\n", o.directory, o.directory);
    return absl::OkStatus();
  });
  init->add_option("--name", options->authority, "The authority's name")->capture_default_str();
  init->add_option("--days", options->authority_days, "Days it is valid")
      ->check(CLI::Range(1, kDaysOfAuthority))
      ->capture_default_str();

  CLI::App* server = add("server", "Make the server's certificate", IssueServer);
  server->add_option(
      "--host", options->issue.hosts,
      "Names and addresses that clients reach it by; localhost is always among them");

  CLI::App* client = add("client", "Make a client process's certificate", [](CertsOptions& o) {
    LEEWAY_RETURN_IF_ERROR(IssueClient(o));
    return PrintIssued(o);
  });
  DeclareClientFlags(*client, *options);

  for (CLI::App* command : {server, client}) {
    command->add_option("--name", options->issue.name, "Name of the files and in the list");
    command->add_option("--days", options->issue.days, "Days it is valid")->capture_default_str();
    command->add_flag("--renew", options->issue.renew, "Replace the files of this name");
  }
  CLI::App* list = add("list", "List all certificates made here, with their expiry",
                       [](CertsOptions& o) { return PrintList(o.directory, o.json); });
  list->add_flag("--json", options->json, "For programs");
  CLI::App* revoke = add("revoke", "Revoke the certificates of a name", [](CertsOptions& o) {
    LEEWAY_ASSIGN_OR_RETURN(const size_t count, Revoke(o.directory, o.revoke));
    absl::PrintF("revoked %d certificate(s) of %s in %s\n", count, o.revoke, CrlPath(o.directory));
    return absl::OkStatus();
  });
  revoke->add_option("NAME", options->revoke, "As in the list")->required();
  return certs;
}

}  // namespace leeway
