#include "trireme/server/disk/parameter_part.h"

#include <utility>

#include "trireme/base/error.h"
#include "trireme/server/disk/part_audit.h"
#include "trireme/server/disk/part_files.h"
#include "trireme/server/disk/part_log.h"
#include "trireme/server/disk/part_state.h"

namespace trireme {
namespace {

constexpr std::string_view kUpdateNote = "update";
constexpr const char *kAuditBytes = "audit/bytes", *kAuditSum = "audit/checksum";

}  // namespace

class ParameterPart::Impl {
 public:
  Impl(const PartStorage& storage, PartState&& state) : storage_(storage), state_(std::move(state)) {}

  void Create() {
    if (!storage_.audit.empty()) audit_ = std::make_unique<PartAudit>(storage_.audit);
    if (!storage_.folder.empty()) files_ = PartFiles::Create(storage_, Saved());
  }

  static std::unique_ptr<Impl> Recover(const PartStorage& storage) {
    if (storage.folder.empty()) return nullptr;
    std::unique_ptr<PartFiles> files = PartFiles::Open(storage);
    if (files == nullptr) return nullptr;
    std::optional<PartAudit::Extent> audit;
    std::unique_ptr<Impl> part;
    {
      const StateReader saved = files->ReadState();
      if (saved.Has(kAuditBytes)) {
        audit = PartAudit::Extent{.bytes = saved.GetValue<std::uint64_t>(kAuditBytes),
                                  .sum = saved.GetValue<std::uint64_t>(kAuditSum)};
      }
      part = std::make_unique<Impl>(storage, PartState(saved));
    }
    part->files_ = std::move(files);
    part->Replay(audit);
    return part;
  }

  void Apply(const PartUpdate& update, std::span<const float> gradient, const std::string& note) {
    TRIREME_CHECK(InOrder(update.groups.all()));
    TRIREME_CHECK(gradient.size() == state_.params().size());
    TRIREME_CHECK(update.sequence > state_.LastSequence(update.worker));
    Commit({.kind = LogRecord::Kind::kUpdate,
            .version = state_.version() + 1,
            .update = update,
            .gradient = gradient,
            .name = {},
            .text = note});
  }

  bool GoBack(std::uint64_t mark) {
    if (state_.last_mark() != mark || !state_.ChangedSinceMark()) return false;
    const std::uint64_t version = state_.version() + 1;
    Commit({.kind = LogRecord::Kind::kGoBack,
            .version = version,
            .update = {.sequence = version, .mark = mark},
            .gradient = {},
            .name = {},
            .text = {}});
    return true;
  }

  void Note(const std::string& name, const std::string& value) {
    Commit({.kind = LogRecord::Kind::kNote,
            .version = state_.version(),
            .update = {},
            .gradient = {},
            .name = name,
            .text = value});
  }

  const PartState& state() const { return state_; }
  const std::string& remark() const {
    static const std::string kNone;
    return files_ == nullptr ? kNone : files_->remark();
  }

 private:
  StateWriter Saved() const {
    StateWriter state;
    state_.Save(state);
    if (audit_ != nullptr) {
      state.PutValue<std::uint64_t>(kAuditBytes, audit_->extent().bytes);
      state.PutValue<std::uint64_t>(kAuditSum, audit_->extent().sum);
    }
    return state;
  }

  // The log decides: what is in it has happened, whether or not the process lives to make it in memory.
  void Commit(LogRecord record) {
    MakeRoom(record);
    if (files_ != nullptr && files_->WantsSnapshot(PartLog::SizeOf(record))) {
      files_->BeginSnapshot([this] { return Saved(); });
    }
    const bool audited = audit_ != nullptr && record.kind != LogRecord::Kind::kNote;
    if (audited) audit_->Add(record.version, record.update);
    try {
      if (files_ != nullptr) files_->Append(record);
    } catch (const Error&) {
      if (audited) audit_->TakeBack();
      throw;
    }
    Make(record);
  }

  void Make(const LogRecord& record) noexcept {
    if (record.kind == LogRecord::Kind::kUpdate) state_.Apply(record.update, record.gradient);
    if (record.kind == LogRecord::Kind::kGoBack) state_.GoBack();
    if (HasNote(record)) state_.SetNote(NoteName(record), record.text);
  }
  // Makes that no change fails once it is logged.
  void MakeRoom(const LogRecord& record) {
    if (HasNote(record)) state_.MakeRoomForNote(NoteName(record), record.text.size());
    if (record.kind == LogRecord::Kind::kUpdate && record.update.mark) state_.MakeRoomForMark();
  }
  static bool HasNote(const LogRecord& record) {
    return record.kind != LogRecord::Kind::kUpdate || !record.text.empty();
  }
  static std::string_view NoteName(const LogRecord& record) {
    return record.kind == LogRecord::Kind::kNote ? record.name : kUpdateNote;
  }

  bool Fits(const LogRecord& record) const {
    switch (record.kind) {
      case LogRecord::Kind::kUpdate:
        return record.version == state_.version() + 1 && record.gradient.size() == state_.params().size() &&
               record.update.sequence > state_.LastSequence(record.update.worker) &&
               InOrder(record.update.groups.all());
      case LogRecord::Kind::kNote:
        return record.version == state_.version();
      case LogRecord::Kind::kGoBack:
        return record.version == state_.version() + 1 && record.update.mark == state_.last_mark() &&
               state_.ChangedSinceMark();
    }
    return false;
  }

  // `audit`: what it was at the snapshot. Where there was none, or its file is gone, a new one begins at the
  // recovered version, and a snapshot remembers that.
  void Replay(const std::optional<PartAudit::Extent>& audit) {
    const bool audited = !storage_.audit.empty();
    const bool goes_on =
        audited && audit.has_value() && (audit->bytes == 0 || PartAudit::Exists(storage_.audit));
    if (goes_on) audit_ = std::make_unique<PartAudit>(storage_.audit, *audit, state_.version());
    files_->Replay([&](const LogRecord& record) {
      if (!Fits(record)) {
        Fail(
            "the log in {} does not fit its snapshot at change {}: put back a copy of the whole folder, or "
            "remove it to begin the part anew",
            storage_.folder.string(), record.number);
      }
      if (goes_on && record.kind != LogRecord::Kind::kNote) audit_->Add(record.version, record.update);
      MakeRoom(record);
      Make(record);
    });
    if (files_->lost()) files_->BeginAnew(Saved());
    if (!audited || goes_on) return;
    audit_ = std::make_unique<PartAudit>(storage_.audit);
    files_->BeginSnapshot([this] { return Saved(); });
    files_->FinishSnapshot();
  }

  PartStorage storage_;
  PartState state_;
  std::unique_ptr<PartAudit> audit_;
  std::unique_ptr<PartFiles> files_;
};

ParameterPart::ParameterPart(const PartSetup& setup, const PartStorage& storage,
                             std::span<const float> params, std::span<const float> moments,
                             std::uint64_t updates, std::int64_t steps)
    : impl_(std::make_unique<Impl>(storage, PartState(setup, params, moments, updates, steps))) {
  impl_->Create();
}

ParameterPart::ParameterPart(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

std::unique_ptr<ParameterPart> ParameterPart::Recover(const PartStorage& storage) {
  std::unique_ptr<Impl> impl = Impl::Recover(storage);
  return impl == nullptr ? nullptr : std::unique_ptr<ParameterPart>(new ParameterPart(std::move(impl)));
}

ParameterPart::~ParameterPart() = default;

const std::string& ParameterPart::remark() const { return impl_->remark(); }
const PartSetup& ParameterPart::setup() const { return impl_->state().setup(); }
std::span<const float> ParameterPart::params() const { return impl_->state().params(); }
std::span<const float> ParameterPart::moments(std::size_t m) const { return impl_->state().moments(m); }
std::size_t ParameterPart::moment_count() const { return impl_->state().moment_count(); }
std::span<const std::byte> ParameterPart::delta() const { return impl_->state().delta(); }
std::uint64_t ParameterPart::version() const { return impl_->state().version(); }
std::uint64_t ParameterPart::updates() const { return impl_->state().updates(); }
std::optional<std::uint64_t> ParameterPart::last_mark() const { return impl_->state().last_mark(); }
bool ParameterPart::GoBack(std::uint64_t mark) { return impl_->GoBack(mark); }
std::int64_t ParameterPart::steps() const { return impl_->state().steps(); }
std::uint64_t ParameterPart::LastSequence(std::uint64_t worker) const {
  return impl_->state().LastSequence(worker);
}
void ParameterPart::Apply(const PartUpdate& update, std::span<const float> gradient,
                          const std::string& note) {
  impl_->Apply(update, gradient, note);
}
void ParameterPart::Note(const std::string& name, const std::string& value) { impl_->Note(name, value); }
const std::string& ParameterPart::NoteOf(const std::string& name) const {
  return impl_->state().NoteOf(name);
}

}  // namespace trireme
