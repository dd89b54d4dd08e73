import type { Execution } from '@ash-ai/sdk'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startTestServer, type TestServer } from './support/test-server.ts'

// Debian's numpy, pandas and matplotlib, as people use them.
const CHART = `
import numpy as np
import pandas as pd
import matplotlib.pyplot as plt

table = pd.DataFrame({'x': np.linspace(0, 10, 50)})
table['y'] = np.sin(table.x)
figure, axes = plt.subplots(figsize=(5, 3))
axes.plot(table.x, table.y)
figure.savefig('chart.png')
table.head(3)
`
const PNG = [137, 80, 78, 71, 13, 10, 26, 10]

let server: TestServer

beforeAll(async () => {
  server = await startTestServer()
})
afterAll(() => server.close())

test('a chart of a kernel is a rich result and a file, beside the table that the code ends with', async () => {
  const { id } = await server.client.sessions.create({ template: 'python' })
  await expectChart(await server.client.sessions.execute(id, { code: CHART }))
})

test('a chart of a single run can be had when nothing of its sandbox is left', async () => {
  await expectChart(await server.client.execute({ code: CHART }))
})

async function expectChart(execution: Execution): Promise<void> {
  expect(execution).toMatchObject({ status: 'completed', stderr: '', artifacts: [{ path: 'chart.png' }] })
  const [figure, value] = execution.results
  const shown = Buffer.from(String(figure?.data['image/png']), 'base64')
  const kept = await server.client.executions.download(execution.sessionId, execution.id, 'chart.png')
  for (const image of [shown, Buffer.concat(await Array.fromAsync(kept))]) {
    expect([...image.subarray(0, 8)]).toEqual(PNG)
    // Its width, as the head of the image has it: 5 inches at 100 dots, give or take the margins.
    expect(image.readUInt32BE(16)).toBeGreaterThan(300)
  }
  expect(value).toMatchObject({
    isValue: true,
    data: { 'application/vnd.ash.table+json': { columns: ['x', 'y'], totalRows: 3 } },
  })
}
