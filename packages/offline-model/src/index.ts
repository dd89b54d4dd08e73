export type { Outcome } from './exchange.ts'
export { type MessagesApi, type MessagesApiOptions, startMessagesApi } from './messages-api.ts'
export type { MessagesRequest, RequestBlock, RequestMessage } from './messages-request.ts'
export { offlineScript } from './offline-script.ts'
export type { RequestContext, ToolResult } from './request-context.ts'
export type { RecordedRequest } from './request-log.ts'
export type {
  ContentBlock,
  Rule,
  RuleCondition,
  Script,
  ScriptFunction,
  ScriptObject,
  Step,
  StepError,
  ToolCall,
  Usage,
} from './script.ts'
