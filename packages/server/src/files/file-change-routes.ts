import { FileModeChange, FileStat, FileTransfer, FolderCreate } from '@ash-ai/shared'
import type { FastifyInstance } from 'fastify'
import type { ZodTypeProvider } from 'fastify-type-provider-zod'
import { changeMode, copyFile, makeFolder, moveFile } from './change-files.ts'
import { OfSession, type SessionFiles, tags } from './session-files.ts'
import { statFile } from './stat-file.ts'
import type { Workspace } from './workspace-folder.ts'

/** Folders, moves, copies and modes. Each answers with what is then at the path. */
export function registerFileChangeRoutes(app: FastifyInstance, deps: SessionFiles): void {
  const routes = app.withTypeProvider<ZodTypeProvider>()
  const common = { tags, params: OfSession, response: { 200: FileStat } }
  const change = (
    { tenantId, params }: { tenantId: string; params: { id: string } },
    path: string,
    work: (workspace: Workspace) => Promise<void>,
  ): Promise<FileStat> =>
    deps.change(tenantId, params.id, async (workspace) => {
      await work(workspace)
      return statFile(workspace, path)
    })

  routes.post(
    '/api/sessions/:id/files/mkdir',
    { schema: { ...common, summary: 'Make a folder', body: FolderCreate } },
    async ({ tenantId, params, body: { path, parents } }) =>
      change({ tenantId, params }, path, (workspace) => makeFolder(workspace, path, parents)),
  )
  routes.post(
    '/api/sessions/:id/files/move',
    { schema: { ...common, summary: 'Move or rename a file or a folder', body: FileTransfer } },
    async ({ tenantId, params, body }) =>
      change({ tenantId, params }, body.to, (workspace) => moveFile(workspace, body)),
  )
  routes.post(
    '/api/sessions/:id/files/copy',
    { schema: { ...common, summary: 'Copy a file or a folder', body: FileTransfer } },
    async ({ tenantId, params, body }) =>
      change({ tenantId, params }, body.to, (workspace) => copyFile(workspace, body)),
  )
  routes.post(
    '/api/sessions/:id/files/chmod',
    {
      schema: {
        ...common,
        summary: 'Change the permission bits of a file or a folder',
        body: FileModeChange,
      },
    },
    async ({ tenantId, params, body: { path, mode } }) =>
      change({ tenantId, params }, path, (workspace) =>
        changeMode(workspace, path, Number.parseInt(mode, 8)),
      ),
  )
}
