# Small CNN for regression: predicts numbers from an image, such as an angle, a position, or the size of a defect.
#
# Designed for images of any size. Predicts one number for each target of the dataset, whatever their
# scale: the loss is the mean squared error in units of their standard deviations.
# Recommended settings: Adam, learning rate 0.002 with cosine decay, batch size 16, 40 epochs, per-channel mean, random
# shifts by up to 4 pixels. Turn the shifts off if the targets are positions.
#
# settings: solver_type=ADAM learning_rate=0.002 lr_policy=cosine batch_size=16 train_epochs=40 use_mean=pixel
# settings: aug_pad_crop=4
# kinds: image-regression image-gradients generic

from keras import layers

# Larger images are first halved until neither side exceeds this number of pixels.
LARGEST = 64

# Each block then halves them until neither side exceeds this number of cells.
SMALLEST = 8

# Filters in the first block, doubled in each further block up to the second number.
FILTERS = [16, 128]


class UserModel(Tower):
    @model_property
    def inference(self):
        net = self.x / 64.0
        # The differences from the surroundings show fine details, such as scratches, regardless of their brightness.
        net = tf.concat([net, *[4 * (net - self.surroundings(net, size)) for size in (3, 9)]], axis=3)
        filters, most = FILTERS
        block = 1
        scales = []
        while max(net.shape[1:3]) > LARGEST:
            net = self.convolution(net, filters, f"reduce{block}", strides=2)
            scales.append(net)
            block += 1
        first = block
        while block == first or max(net.shape[1:3]) > SMALLEST:
            scales.append(self.convolution(net, filters, f"conv{block}"))
            filters = min(2 * filters, most)
            net = self.convolution(scales[-1], filters, f"reduce{block}", strides=2)
            block += 1
        # The means over the maps measure how frequent small and large patterns are; the positions, where they are.
        much = [layers.GlobalAveragePooling2D()(maps) for maps in (*scales, net)]
        net = tf.concat([*much, self.places(net)], axis=1)
        # No activation: the numbers are unbounded. They start near the mean of the targets.
        return digits.scale_output(
            layers.Dense(self.nclasses, kernel_initializer="zeros", name="numbers")(net)
        )

    def surroundings(self, net, size):
        """The mean of ``size`` x ``size`` pixels around each pixel, in one pass over the columns and one over the rows.

        On a CPU, pooling with long rows as channels is 20 times as fast as pooling over squares.
        """
        for _ in range(2):
            height, width, channels = net.shape[1:]
            rows = tf.reshape(net, [-1, height, 1, width * channels])
            rows = layers.AveragePooling2D((size, 1), 1, padding="same", dtype="float32")(rows)
            net = tf.transpose(tf.reshape(rows, [-1, height, width, channels]), [0, 2, 1, 3])
        return net

    def places(self, net):
        """The mean positions of 16 patterns, -1 to 1, by a softmax over all cells: [N, 32]."""
        height, width = net.shape[1:3]
        maps = tf.reshape(layers.Conv2D(16, 1, name="places")(net), [-1, height * width, 16])
        weights = tf.nn.softmax(tf.cast(maps, tf.float32), axis=1)
        down, across = np.meshgrid(np.linspace(-1, 1, height), np.linspace(-1, 1, width), indexing="ij")
        means = [
            tf.reduce_sum(weights * position.reshape(1, -1, 1).astype(np.float32), axis=1)
            for position in (down, across)
        ]
        return tf.cast(tf.concat(means, axis=1), net.dtype)

    def convolution(self, net, filters, name, strides=1):
        net = layers.Conv2D(
            filters,
            3,
            strides=strides,
            padding="same",
            use_bias=False,
            kernel_initializer="he_normal",
            name=name,
        )(net)
        # Validation uses the moving averages: with a momentum of 0.9 they converge after a few dozen steps.
        normalize = layers.BatchNormalization(momentum=0.9, name=f"{name}_norm")
        return tf.nn.relu(normalize(net, training=self.is_training))

    @model_property
    def loss(self):
        return digits.loss(self.inference, self.y)
