import { expect, test } from 'vitest'
import { Lane } from './lane.ts'

test('as many as the lane is wide work at once, the others in the order in which they came', async () => {
  const lane = new Lane(2, 10)
  const order: number[] = []
  const places = [1, 2, 3, 4].map((number) => {
    const place = lane.enter()
    void place.ready.then(() => order.push(number))
    return place
  })
  await Promise.resolve()
  expect(order).toEqual([1, 2])
  expect(lane.waiting).toBe(2)
  places[1]?.leave()
  await Promise.resolve()
  expect(order).toEqual([1, 2, 3])
  places[0]?.leave()
  await Promise.resolve()
  expect(order).toEqual([1, 2, 3, 4])
})

test('who gives up while waiting is passed over, and hears of it', async () => {
  const lane = new Lane(1, 10)
  const [first, second, third] = [lane.enter(), lane.enter(), lane.enter()]
  second.leave()
  second.leave()
  await second.ready
  expect(lane.waiting).toBe(1)
  first.leave()
  await third.ready
  third.leave()
  expect(lane.isEmpty).toBe(true)
})

test('a lane with as many waiting as may wait refuses, but not what it knew before', () => {
  const lane = new Lane(1, 1)
  expect(lane.enter().isWaiting).toBe(false)
  expect(lane.enter().isWaiting).toBe(true)
  expect(() => lane.enter()).toThrow(expect.objectContaining({ code: 'queue_full' }))
  expect(lane.enter(true).isWaiting).toBe(true)
})
