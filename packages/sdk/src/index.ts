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
  type InterruptReply,
  isAshError,
  type Kernel,
  type KernelCreate,
  LANGUAGES,
  type Language,
  type LogEntry,
  MAX_AGENT_BYTES,
  MAX_AGENT_FILES,
  MAX_JSON_BODY_BYTES,
  MAX_RUN_TIMEOUT_MS,
  type MessageSend,
  type Packages,
  type PermissionAnswer,
  type PermissionRequest,
  type PermissionResolution,
  type PermissionSettings,
  type Ready,
  type ResumePath,
  type RollbackRequest,
  type SandboxState,
  type Session,
  type SessionCreate,
  type SessionMode,
  type SessionPatch,
  type SessionStatus,
  type Template,
  type TemplateCreate,
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
  FileListing,
  FileListOptions,
  FileReadOptions,
  WrittenFile,
} from './file-client.ts'
export type { RequestOptions } from './http.ts'
export type { KernelClient, KernelRef } from './kernel-client.ts'
export type { ExecuteOptions, SessionRun, SingleRun } from './run-code.ts'
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
export type { Turn, TurnResult } from './turn.ts'
export type { DownloadOptions, UploadOptions, WorkspaceClient } from './workspace-client.ts'
