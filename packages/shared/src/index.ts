export { AgentOptions } from './api/agent-options.ts'
export { Agent, AgentDeploy, AgentVersion, DeployConfig, FileInput } from './api/agent-schemas.ts'
export {
  CHECKPOINT_REASONS,
  Checkpoint,
  CheckpointDiff,
  type CheckpointEventData,
  CheckpointId,
  CheckpointList,
  DiffQuery,
  ForkRequest,
  GarbageReport,
  GarbageRequest,
  ResumePath,
  RollbackRequest,
  WorkspaceUpload,
} from './api/checkpoint-schemas.ts'
export {
  AgentName,
  Env,
  ErrorReply,
  IsoTime,
  isRelativePath,
  Paging,
  RelativePath,
  SessionId,
} from './api/common-schemas.ts'
export { Credential, CredentialCreate, CredentialName, CredentialScheme } from './api/credential-schemas.ts'
export { ExecReply, ExecRequest } from './api/exec-schemas.ts'
export {
  Artifact,
  ExecuteRequest,
  Execution,
  type ExecutionEventData,
  ExecutionList,
  ExecutionSummary,
  Kernel,
  KernelCreate,
  KernelName,
  type OutputEventData,
} from './api/execution-schemas.ts'
export {
  type FileChange,
  FileDelete,
  FileEntry,
  FileLink,
  FileLinkCreate,
  FileList,
  FileMode,
  FileModeChange,
  FileSearch,
  FileStat,
  FilesWrite,
  FileText,
  FileTransfer,
  FolderCreate,
  MAX_COPY_BYTES,
  MAX_COPY_ENTRIES,
} from './api/file-schemas.ts'
export {
  AcceptedReply,
  type DoneEventData,
  type EgressDeniedEventData,
  type ErrorEventData,
  EVENT_TYPES,
  EventList,
  type EventType,
  IdempotencyKey,
  InterruptReply,
  type LimitEventData,
  LogEntry,
  MessageList,
  MessageSend,
  SendQuery,
  type TurnEventData,
  type TurnReply,
} from './api/message-schemas.ts'
export {
  InstalledPackages,
  PackageInstall,
  PackageInstallRequest,
  type Packages,
} from './api/package-schemas.ts'
export {
  PermissionAnswer,
  type PermissionEventData,
  PermissionRequest,
  PermissionResolution,
  PermissionSettings,
} from './api/permission-schemas.ts'
export { Health, Ready } from './api/platform-schemas.ts'
export { Port, PortNumber, PreviewLink, PreviewLinkCreate } from './api/port-schemas.ts'
export { LogLine, LogTail, SandboxId, SandboxInfo, SandboxList } from './api/sandbox-schemas.ts'
export {
  AgentConfig,
  BudgetLimits,
  CheckpointSettings,
  Limits,
  ModelUsage,
  Network,
  SessionPatch,
  sdkOptions,
} from './api/sandbox-settings.ts'
export {
  ExecuteOnce,
  type NewSession,
  Session,
  SessionCreate,
  SessionList,
  toNewSession,
  toOnce,
} from './api/session-schemas.ts'
export {
  SessionMode,
  Template,
  TemplateCreate,
  TemplateName,
  TemplateSettings,
  WarmPools,
} from './api/template-schemas.ts'
export {
  TERMINAL_CLOSE,
  Terminal,
  TerminalConnect,
  TerminalControl,
  TerminalCreate,
  TerminalId,
  TerminalToken,
  ViewerControl,
} from './api/terminal-schemas.ts'
export {
  type BridgeCommand,
  decodeCommand,
  type ExecResult,
  type ExecuteResult,
  type PermissionDecision,
  type SessionSetup,
  type StartResult,
  type TerminalExit,
  type TerminalRead,
  type TerminalSize,
  type TerminalStart,
  TUNNEL_TOKEN_BYTES,
  type TunnelResult,
} from './bridge-commands.ts'
export {
  type BridgeEvent,
  bridgeError,
  decodeEvent,
  encodeLine,
  encodeMessage,
  type MessageEvent,
  type OutputStream,
  type PermissionRequestEvent,
  type TerminalEvent,
  type TurnDone,
  UNSOLICITED,
} from './bridge-events.ts'
export {
  AGENT_CONFIG_FILE,
  AGENT_STATE_FILE,
  DEFAULT_EXEC_TIMEOUT_MS,
  DEFAULT_HOST,
  DEFAULT_PORT,
  DEFAULT_RUN_TIMEOUT_MS,
  DEFAULT_TENANT,
  MAX_AGENT_BYTES,
  MAX_AGENT_FILES,
  MAX_CONTENT_BLOCKS,
  MAX_EXEC_OUTPUT_BYTES,
  MAX_EXEC_TIMEOUT_MS,
  MAX_FILE_BYTES,
  MAX_FILES_PER_REQUEST,
  MAX_JSON_BODY_BYTES,
  MAX_LINE_BYTES,
  MAX_MESSAGE_CHARS,
  MAX_OUTSTANDING_COMMANDS,
  MAX_PATH_CHARS,
  MAX_RUN_TIMEOUT_MS,
  MAX_TERMINAL_BYTES,
  MAX_TERMINAL_SIDE,
  MAX_TERMINALS,
  STUCK_CLIENT_TIMEOUT_MS,
} from './constants.ts'
export { toTemplateName } from './environment-name.ts'
export { AshError, ERRORS, type ErrorCode, type ErrorDetail, isAshError, isErrorCode } from './errors.ts'
export {
  EXECUTION_STATUSES,
  type ExecutionStatus,
  isFinished,
  MAX_ATTEMPTS,
  RETRY_DELAYS_MS,
} from './execution-state.ts'
export {
  type HandlerContext,
  INTERPRETER_FD,
  INTERRUPT_GRACE_MS,
  LANGUAGES,
  type Language,
  MAX_INTERPRETER_LINE_BYTES,
  MAX_RESULT_BYTES,
  MAX_RESULTS_BYTES,
  MAX_RUN_OUTPUT_BYTES,
  type MimeBundle,
  type OutputPiece,
  type RunEnd,
  type RunError,
  type RunMetrics,
  type RunOutcome,
  type RunRequest,
  TABLE_TYPE,
} from './interpreter.ts'
export {
  type InterpreterPaths,
  interpreterCommand,
  pythonName,
  STARTING_NAMES,
  shellInput,
} from './interpreter-command.ts'
export { type ChannelEnd, InterpreterLink, type InterpreterProcess } from './interpreter-link.ts'
export { brokenChannel, NO_USAGE, type ProcessExit, type RunUsage } from './interpreter-outcome.ts'
export type { ReadableEnd, TakePiece } from './interpreter-output.ts'
export { decodeEnd, decodeReply, encodeDisplay } from './interpreter-replies.ts'
export { LineSplitter, ProtocolError } from './line-splitter.ts'
export {
  canFollow,
  SANDBOX_STATES,
  type SandboxState,
  SESSION_STATUSES,
  type SessionStatus,
  statusesBefore,
} from './session-state.ts'
export { formatSSE, parseSSE, type SSEFrame } from './sse.ts'
export { isToolInput, MAX_TOOL_INPUT_CHARS } from './tool-input.ts'
