# Small multi-label CNN: predicts any number of labels for an image, such as the objects in it.
#
# Designed for images of any size. Returns one logit for each label of the dataset: a label is predicted
# if its logit is positive, independently of the other labels.
# Recommended settings: Adam, learning rate 0.002 with cosine decay, batch size 16, 40 epochs, per-channel mean.
#
# settings: solver_type=ADAM learning_rate=0.002 lr_policy=cosine batch_size=16 train_epochs=40 use_mean=pixel
# kinds: image-multilabel

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
        filters, most = FILTERS
        block = 1
        while max(net.shape[1:3]) > LARGEST:
            net = self.convolution(net, filters, f"reduce{block}", strides=2)
            block += 1
        first = block
        while block == first or max(net.shape[1:3]) > SMALLEST:
            net = self.convolution(net, filters, f"conv{block}")
            filters = min(2 * filters, most)
            net = self.convolution(net, filters, f"reduce{block}", strides=2)
            block += 1
        # The means over the maps measure how frequent each pattern is; the maxima, whether it occurs at all.
        net = tf.concat([layers.GlobalAveragePooling2D()(net), layers.GlobalMaxPooling2D()(net)], axis=1)
        # No activation: the loss and the predictions apply the sigmoid to these logits.
        return layers.Dense(self.nclasses, name="logits")(net)

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
