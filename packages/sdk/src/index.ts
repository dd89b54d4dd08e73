export {
  type AcceptedReply,
  type Agent,
  type AgentDeploy,
  type AgentOptions,
  type AgentVersion,
  type Artifact,
  AshError,
  type Checkpoint,
  type CheckpointDiff,
  type CheckpointEventData,
  type CheckpointSettings,
  type Credential,
  type CredentialCreate,
  type CredentialScheme,
  DEFAULT_HOST,
  DEFAULT_PORT,
  type ErrorCode,
  type ErrorDetail,
  EVENT_TYPES,
  type EventType,
  EXECUTION_STATUSES,
  type ExecReply,
  type ExecRequest,
  type ExecuteOnce,
  type ExecuteRequest,
  type Execution,
  type ExecutionStatus,
  type ExecutionSummary,
  type FileChange,
  type FileEntry,
  type FileInput,
  type FileLink,
  type FileLinkCreate,
  type FileStat,
  type FileTransfer,
  type ForkRequest,
  type GarbageReport,
  type GarbageRequest,
  type Health,
  type InstalledPackages,
  type InterruptReply,
  isAshError,
  type Kernel,
  type KernelCreate,
  LANGUAGES,
  type Language,
  type LogEntry,
  type LogLine,
  MAX_AGENT_BYTES,
  MAX_AGENT_FILES,
  MAX_JSON_BODY_BYTES,
  MAX_RUN_TIMEOUT_MS,
  type MessageSend,
  type PackageInstall,
  type PackageInstallRequest,
  type Packages,
  type PermissionAnswer,
  type PermissionRequest,
  type PermissionResolution,
  type PermissionSettings,
  type Port,
  type PreviewLink,
  type PreviewLinkCreate,
  type Ready,
  type ResumePath,
  type RollbackRequest,
  type SandboxInfo,
  type SandboxState,
  type Session,
  type SessionCreate,
  type SessionMode,
  type SessionPatch,
  type SessionStatus,
  type Template,
  type TemplateCreate,
  type Terminal,
  type TerminalCreate,
  type TerminalSize,
  type TerminalToken,
} from '@ash-ai/shared'
export type { AgentClient, PageOptions } from './agent-client.ts'
export type { CheckpointClient, DiffOptions } from './checkpoint-client.ts'
export { AshClient, type AshClientOptions } from './client.ts'
export type { CredentialClient } from './credential-client.ts'
export { AshApiError, AshConnectionError, AshReplyError, type ConnectionFailure } from './errors.ts'
export type { FollowOptions } from './event-stream.ts'
export type { ExecutionEvent, OutputEvent, SdkMessage, SessionEvent } from './events.ts'
export type {
  ExecutionClient,
  ExecutionListOptions,
  SessionArtifact,
  WaitOptions,
} from './execution-client.ts'
export type { ExecutionStream, ExecutionStreamEvent } from './execution-stream.ts'
export type {
  FileClient,
  FileContent,
  FileListing,
  FileListOptions,
  FileReadOptions,
  FileSearchOptions,
  FileStreamOptions,
  FileWriteOptions,
  WrittenFile,
} from './file-client.ts'
export type { FileEvent } from './file-watch.ts'
export type { RequestOptions } from './http.ts'
export type { KernelClient, KernelRef } from './kernel-client.ts'
export {
  type AgentState,
  type CodeOptions,
  Lifecycle,
  type SandboxStart,
  type StartedSandbox,
} from './lifecycle.ts'
export type { FormFile } from './multipart-body.ts'
export type { PackageClient } from './package-client.ts'
export type { PortClient } from './port-client.ts'
export type { ExecuteOptions, SessionRun, SingleRun } from './run-code.ts'
export type { LogTailOptions, SandboxClient, SandboxListOptions } from './sandbox-client.ts'
export { textDeltaOf, textOf, toolUsesOf } from './sdk-message.ts'
export type {
  EventListOptions,
  MessageListOptions,
  ResumedSession,
  SendOptions,
  SessionClient,
  SessionListOptions,
} from './session-client.ts'
export type { TemplateClient } from './template-client.ts'
export type { TerminalClient, TerminalOpenOptions } from './terminal-client.ts'
export type { TerminalConnection, TerminalEnd } from './terminal-connection.ts'
export type { Turn, TurnResult } from './turn.ts'
export type { DownloadOptions, UploadOptions, WorkspaceClient } from './workspace-client.ts'
